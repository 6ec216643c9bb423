//! Messages that name their parents, in an order in which every one comes after its own. What names a parent that is
//! not there begins anew; what goes round in a circle is refused.

use std::collections::HashMap;

use super::Refusal;

/// The places of items by id and parent id, parents first, children in the order they are given in.
pub fn order(items: &[(String, Option<String>)]) -> Result<Vec<(usize, Option<usize>)>, Refusal> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, (id, _)) in items.iter().enumerate() {
        if places.insert(id.as_str(), at).is_some() {
            let shown: String = id.chars().take(80).collect();
            return Err(Refusal(format!("the message {shown:?} is there twice")));
        }
    }
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    let mut open = Vec::new();
    for (at, (_, parent)) in items.iter().enumerate() {
        match parent.as_deref().and_then(|parent| places.get(parent)) {
            Some(parent) => {
                if let Some(of) = children.get_mut(*parent) {
                    of.push(at);
                }
            }
            None => open.push((at, None)),
        }
    }
    open.reverse();
    let mut ordered = Vec::with_capacity(items.len());
    while let Some((at, parent)) = open.pop() {
        ordered.push((at, parent));
        let own = children.get(at).map(Vec::as_slice).unwrap_or_default();
        open.extend(own.iter().rev().map(|child| (*child, Some(at))));
    }
    if ordered.len() < items.len() {
        return Err(Refusal::new("its messages answer each other in a circle"));
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(items: &[(&str, Option<&str>)]) -> Result<Vec<usize>, Refusal> {
        let items: Vec<_> =
            items.iter().map(|(id, parent)| ((*id).to_owned(), parent.map(str::to_owned))).collect();
        Ok(order(&items)?.into_iter().map(|(at, _)| at).collect())
    }

    #[test]
    fn parents_come_first_and_siblings_keep_their_order() {
        let items = [("c", Some("b")), ("b", Some("a")), ("a", None), ("d", Some("a")), ("e", Some("gone"))];
        assert_eq!(ordered(&items).unwrap(), [2, 1, 0, 3, 4]);
        assert_eq!(ordered(&[]).unwrap(), [0; 0]);
    }

    #[test]
    fn circles_and_doubles_are_refused() {
        for items in [
            &[("a", Some("b")), ("b", Some("a"))][..],
            &[("a", Some("a"))],
            &[("r", None), ("a", Some("b")), ("b", Some("c")), ("c", Some("a"))],
            &[("a", None), ("a", None)],
        ] {
            assert!(ordered(items).is_err(), "{items:?}");
        }
    }
}

//! What a text in angle brackets is: by its doctype or its first element, behind whatever may stand before them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Markup {
    Html,
    Svg,
    Xml,
}

/// None for a text that is no document of these, though it may hold tags.
pub(super) fn of(text: &str) -> Option<Markup> {
    let mut rest = text;
    let mut declared = None;
    loop {
        rest = rest.trim_start();
        if rest.starts_with("<!--") {
            rest = after(rest, "-->")?;
        } else if rest.starts_with("<?") {
            if begins(rest, "<?xml") {
                declared = Some(Markup::Xml);
            }
            rest = after(rest, "?>").unwrap_or_default();
        } else if begins(rest, "<!doctype") {
            let root = rest["<!doctype".len()..].trim_start();
            return named(root).or(Some(Markup::Xml));
        } else {
            return rest.strip_prefix('<').and_then(named).or(declared);
        }
    }
}

/// By the name of the root element that stands here, with or without a prefix.
fn named(text: &str) -> Option<Markup> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != ':').unwrap_or(text.len());
    let name = text[..end].rsplit(':').next()?;
    [("html", Markup::Html), ("svg", Markup::Svg)]
        .into_iter()
        .find_map(|(root, markup)| name.eq_ignore_ascii_case(root).then_some(markup))
}

fn begins(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

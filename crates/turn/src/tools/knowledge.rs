//! What the workspace knows: `search_pages` and `search_user_tables`, which cite what they find, and `save_to_table`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use domain::model::ToolSpec;
use domain::page::row_source;
use domain::scope::Scope;
use domain::search::{Query, excerpt};
use domain::table::{Row, RowFaults, Table, read_rows};
use domain::time::Clock;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use store::Store;
use store::knowledge::{FoundRow, TextSearch};
use uuid::Uuid;

use super::{Output, Place, Tool, spec};

/// How many are found where the model does not say, and at most.
const FOUND: usize = 5;
const MOST_FOUND: usize = 20;
/// Characters of what is found, together and of one at most: a result holds about 4,000.
const SHOWN_CHARS: usize = 3_000;
const MOST_SHOWN: usize = 600;
/// Rows of one call.
const MOST_ROWS: usize = 1_000;
/// Tables that are looked through for a name, a page of them at a time.
const TABLES: usize = 200;
const TABLE_PAGES: usize = 10;
const TOLD: usize = 10;

const AWAY: &str = "the workspace's pages and tables cannot be read now";

/// Searches the workspace's pages.
pub struct SearchPages {
    pub store: Arc<dyn Store>,
}

/// Searches the rows of the workspace's tables.
pub struct SearchTables {
    pub store: Arc<dyn Store>,
}

/// Adds rows to a table.
pub struct SaveToTable {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
}

/// The query of a call, and how much of each thing that it finds is shown.
fn asked(args: &Value) -> Result<(TextSearch, usize), String> {
    let words = args["query"].as_str().unwrap_or_default();
    let query = Query::parse(words).ok_or("query must hold a word")?;
    let limit = args["limit"].as_u64().map_or(FOUND, |n| n.clamp(1, MOST_FOUND as u64) as usize);
    let shown = (SHOWN_CHARS / limit).min(MOST_SHOWN);
    Ok((TextSearch { query, offset: 0, limit }, shown))
}

/// The same where one of the words is enough; none where there is but one.
fn looser(search: &TextSearch) -> Option<TextSearch> {
    let query = search.query.clone();
    (query.phrases().len() > 1).then(|| TextSearch { query: query.any(), ..search.clone() })
}

#[async_trait]
impl Tool for SearchPages {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "required": ["query"], "additionalProperties": false, "properties": {
            "query": { "type": "string", "description": "Words, or their beginnings" },
            "limit": { "type": "integer", "description": "How many pages at most; 5 when left out" } } });
        let about = "Searches the workspace's pages (documents) by their words, best first. Cite a page by its title.";
        spec("search_pages", about, &schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        let (mut search, shown) = asked(&args)?;
        let scope = place.scope();
        let mut found = self.store.search_pages(&scope, &search).await.map_err(|_| AWAY)?.items;
        if let (true, Some(any)) = (found.is_empty(), looser(&search)) {
            search = any;
            found = self.store.search_pages(&scope, &search).await.map_err(|_| AWAY)?.items;
        }
        if found.is_empty() {
            return Ok(Output::text("No page has these words."));
        }
        let mut text = String::new();
        for (at, page) in (1..).zip(&found) {
            let url = page.url.as_ref().map(|url| format!(" ({url})")).unwrap_or_default();
            let piece = excerpt(&page.body, &search.query, shown);
            let _ = write!(text, "{at}. {}{url}\n\n   {piece}\n\n", page.title);
        }
        let sources = found.iter().map(|page| page.source(&search.query)).collect();
        Ok(Output { value: Value::String(text.trim_end().to_owned()), sources })
    }
}

#[async_trait]
impl Tool for SearchTables {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "required": ["query"], "additionalProperties": false, "properties": {
            "query": { "type": "string", "description": "Words, or their beginnings" },
            "table": { "type": "string", "description": "The name or id of a table; all tables when left out" },
            "limit": { "type": "integer", "description": "How many rows at most; 5 when left out" } } });
        let about = "Searches the rows of the workspace's tables by their words, best first. Cite a row by its table.";
        spec("search_user_tables", about, &schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        let (mut search, shown) = asked(&args)?;
        let scope = place.scope();
        let table = match args["table"].as_str() {
            Some(name) => Some(find_table(&*self.store, &scope, name).await?.id),
            None => None,
        };
        let mut found = self.store.search_rows(&scope, table, &search).await.map_err(|_| AWAY)?.items;
        if let (true, Some(any)) = (found.is_empty(), looser(&search)) {
            search = any;
            found = self.store.search_rows(&scope, table, &search).await.map_err(|_| AWAY)?.items;
        }
        let tables = self.tables_of(&scope, &found).await?;
        let (mut text, mut sources) = (String::new(), Vec::new());
        let rows = found.iter().filter_map(|one| Some((tables.get(&one.table)?, &one.row)));
        for (at, (table, row)) in (1..).zip(rows) {
            let words = table.describe(row);
            let _ = writeln!(text, "{at}. {}: {}", table.name, excerpt(&words, &search.query, shown));
            sources.push(row_source((table.id, &table.name), row.id, &words, &search.query));
        }
        if sources.is_empty() {
            return Ok(Output::text("No row of a table has these words."));
        }
        Ok(Output { value: Value::String(text.trim_end().to_owned()), sources })
    }
}

impl SearchTables {
    async fn tables_of(&self, scope: &Scope, found: &[FoundRow]) -> Result<HashMap<Uuid, Table>, String> {
        let mut tables = HashMap::new();
        for FoundRow { table, .. } in found {
            if !tables.contains_key(table)
                && let Some(known) = self.store.find_table(scope, *table).await.map_err(|_| AWAY)?
            {
                tables.insert(*table, known);
            }
        }
        Ok(tables)
    }
}

/// The table of that id or name, whatever the name's case.
async fn find_table(store: &dyn Store, scope: &Scope, named: &str) -> Result<Table, String> {
    if let Ok(id) = Uuid::try_parse(named)
        && let Some(table) = store.find_table(scope, id).await.map_err(|_| AWAY)?
    {
        return Ok(table);
    }
    let (mut alike, mut names, mut after) = (Vec::new(), Vec::new(), None);
    for _ in 0..TABLE_PAGES {
        let page = store.list_tables(scope, after, TABLES).await.map_err(|_| AWAY)?;
        after = page.last().map(|table| table.id);
        let whole = page.len() == TABLES;
        for table in page {
            names.push(format!("{:?}", table.name));
            if table.name.to_lowercase() == named.trim().to_lowercase() {
                alike.push(table);
            }
        }
        if !whole {
            break;
        }
    }
    if let Some(at) = alike.iter().position(|table| table.name == named)
        && alike.iter().filter(|table| table.name == named).count() == 1
    {
        return Ok(alike.swap_remove(at));
    }
    names.truncate(TOLD);
    match alike.len() {
        1 => Ok(alike.swap_remove(0)),
        0 if names.is_empty() => Err("there are no tables in this workspace".to_owned()),
        0 => Err(format!("there is no table {named:?}; there are: {}", names.join(", "))),
        _ => {
            let ids: Vec<String> = alike.iter().map(|table| table.id.to_string()).collect();
            Err(format!("several tables are called {named:?}: name one by its id, {}", ids.join(" or ")))
        }
    }
}

#[async_trait]
impl Tool for SaveToTable {
    fn spec(&self) -> ToolSpec {
        let row =
            json!({ "type": "object", "description": "A value for each column, null or left out for none" });
        let schema = json!({ "type": "object", "required": ["table", "rows"], "additionalProperties": false,
            "properties": {
                "table": { "type": "string", "description": "The name or id of the table" },
                "rows": { "type": "array", "items": row } } });
        let about =
            "Adds rows to a table of the workspace: all of them, or none when one does not fit its columns.";
        spec("save_to_table", about, &schema)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        let scope = place.scope();
        let table = find_table(&*self.store, &scope, args["table"].as_str().unwrap_or_default()).await?;
        let rows = args["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.is_empty() || rows.len() > MOST_ROWS {
            return Err(format!("rows must be 1 to {MOST_ROWS}"));
        }
        let raw = rows.iter().map(to_raw_value).collect::<Result<Vec<_>, _>>();
        let cells = read_rows(&table.columns, &raw.map_err(|error| error.to_string())?);
        let cells = cells.map_err(|faults| refusal(&table, &faults))?;
        let rows: Vec<Row> = cells.into_iter().map(|cells| Row { id: self.clock.new_id(), cells }).collect();
        let saved = self.store.add_rows(&scope, table.id, &rows, self.clock.now()).await;
        saved.map_err(|_| "the rows cannot be saved now; nothing was saved".to_owned())?;
        let unit = if rows.len() == 1 { "row" } else { "rows" };
        Ok(Output::text(format!("Saved {} {unit} to the table {:?}.", rows.len(), table.name)))
    }
}

fn refusal(table: &Table, faults: &RowFaults) -> String {
    let each = faults.first.iter().take(TOLD).map(|fault| match &fault.column {
        Some(column) => format!("row {}, {column:?}: {}", fault.row, fault.message),
        None => format!("row {}: {}", fault.row, fault.message),
    });
    let each: Vec<String> = each.collect();
    format!("nothing was saved to {:?}, {} things are wrong: {}", table.name, faults.count, each.join("; "))
}

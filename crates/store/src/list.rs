//! The text of the conversation queries that both databases share, and their bound values.
//!
//! A list is a merge of index walks: own and shared threads are walked apart, and so are a source and
//! "no source", each stopping after one page. That keeps the cost of a page independent of how many
//! conversations there are, and of how many of them the reader may not see.

use domain::conversation::{ConversationFilter, ConversationQuery, Position, Seek, Sort, SortKey, SortValue};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

/// The columns of a conversation row, in the order both backends read them; `context` comes last.
pub(crate) const COLUMNS: &str = "c.workspace_id, c.id, c.org_id, c.user_id, c.title, c.mode, c.source, c.page_path, \
     c.total_tokens, c.tabs, c.active_tab_key, c.kind, c.workflow_id, c.agent_id, c.model, c.preview, \
     c.message_count, c.first_message, c.visibility, c.deleted_at, c.created_at, c.updated_at, c.version";

pub(crate) fn columns(with_context: bool) -> String {
    format!("{COLUMNS}, {}", if with_context { "c.context" } else { "NULL" })
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Uuid(Uuid),
    Text(String),
    Time(Timestamp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    /// PostgreSQL with the application's own filter left out: what is left is row level security.
    /// Only tests ask for it.
    PostgresUnfiltered,
}

pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
    dialect: Dialect,
}

impl Sql {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { text: String::new(), values: Vec::new(), dialect }
    }

    /// Binds a value and answers its placeholder.
    pub(crate) fn bind(&mut self, value: Value) -> String {
        let number = self.values.iter().position(|bound| *bound == value).unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        }) + 1;
        match self.dialect {
            Dialect::Sqlite => format!("?{number}"),
            Dialect::Postgres | Dialect::PostgresUnfiltered => format!("${number}"),
        }
    }

    /// The conditions under which a scope sees a conversation `c`, as disjoint alternatives that each
    /// have an index of their own.
    fn who(&mut self, scope: &Scope, deleted: bool) -> Vec<String> {
        if self.dialect == Dialect::PostgresUnfiltered {
            return vec!["TRUE".into()];
        }
        let workspace = self.bind(Value::Uuid(scope.workspace));
        let inside = format!("c.workspace_id = {workspace}");
        if scope.sees_all() {
            return vec![inside];
        }
        let user = self.bind(Value::Text(scope.user.clone()));
        let own = format!("{inside} AND c.user_id = {user}");
        if deleted {
            // What was shared and is now deleted is its owner's business again.
            return vec![own];
        }
        vec![
            format!("{own} AND c.visibility = 'private'"),
            format!("{inside} AND c.visibility = 'workspace'"),
        ]
    }

    /// The condition that a row is of the scope's workspace; where the database sees to it, none.
    pub(crate) fn inside(&mut self, scope: &Scope, column: &str) -> String {
        match self.dialect {
            Dialect::PostgresUnfiltered => "TRUE".to_owned(),
            Dialect::Sqlite | Dialect::Postgres => {
                format!("{column} = {}", self.bind(Value::Uuid(scope.workspace)))
            }
        }
    }

    /// The one condition under which a scope sees a conversation `c`.
    pub(crate) fn visible(&mut self, scope: &Scope, deleted: bool) -> String {
        let ways = self.who(scope, deleted);
        format!("(({}))", ways.join(") OR ("))
    }

    /// The filters, `source` aside.
    pub(crate) fn filters(&mut self, filter: &ConversationFilter) -> String {
        let mut all = vec![
            // What is on its way out can no longer be restored.
            (if filter.deleted {
                "c.deleted_at IS NOT NULL AND NOT c.purging"
            } else {
                "c.deleted_at IS NULL"
            })
            .to_owned(),
        ];
        if let Some(mode) = filter.mode {
            all.push(format!("c.mode = {}", self.bind(Value::Text(mode.as_str().into()))));
        }
        if let Some(kind) = filter.kind {
            all.push(format!("c.kind = {}", self.bind(Value::Text(kind.as_str().into()))));
        }
        if let Some(agent) = &filter.agent {
            all.push(format!("c.agent_id = {}", self.bind(Value::Text(agent.clone()))));
        }
        all.join(" AND ")
    }

    /// A row without a source matches every source.
    pub(crate) fn sources(&mut self, filter: &ConversationFilter) -> Vec<String> {
        match filter.source {
            None => vec!["TRUE".into()],
            Some(source) => {
                let bound = self.bind(Value::Text(source.as_str().into()));
                vec![format!("c.source = {bound}"), "c.source IS NULL".into()]
            }
        }
    }

    fn seek(&mut self, sort: Sort, seek: &Seek) -> String {
        let (position, forward) = match seek {
            Seek::Start => return "TRUE".into(),
            Seek::After(position) => (position, true),
            Seek::Before(position) => (position, false),
        };
        let key = sort_column(sort.key);
        let beyond = if sort.descending == forward { "<" } else { ">" };
        let Position { value, id } = position;
        let value = self.bind(match value {
            SortValue::Time(at) => Value::Time(*at),
            SortValue::Text(text) => Value::Text(text.clone()),
        });
        let id = self.bind(Value::Uuid(*id));
        format!("({key}, c.id) {beyond} ({value}, {id})")
    }
}

fn sort_column(key: SortKey) -> &'static str {
    match key {
        SortKey::UpdatedAt => "c.updated_at",
        SortKey::CreatedAt => "c.created_at",
        SortKey::Title => "coalesce(c.title, '')",
    }
}

/// One page and one row more, which tells whether there is another page. When seeking backwards the
/// rows come in reverse.
pub(crate) fn list(dialect: Dialect, scope: &Scope, query: &ConversationQuery) -> Sql {
    let mut sql = Sql::new(dialect);
    let backwards = matches!(query.seek, Seek::Before(_));
    let direction = if query.sort.descending != backwards { "DESC" } else { "ASC" };
    let who = sql.who(scope, query.filter.deleted);
    let sources = sql.sources(&query.filter);
    let filters = sql.filters(&query.filter);
    let seek = sql.seek(query.sort, &query.seek);
    let columns = columns(query.with_context);
    let order = format!("ORDER BY {} {direction}, c.id {direction}", sort_column(query.sort.key));
    // All rows of a walk have the same source, which PostgreSQL does not conclude from IS NULL: only in this
    // order does it walk the index by source, whose other columns run the other way.
    let walk_order = match (query.filter.source, direction) {
        (None, _) => order.clone(),
        (Some(_), "DESC") => order.replacen("ORDER BY", "ORDER BY c.source ASC,", 1),
        (Some(_), _) => order.replacen("ORDER BY", "ORDER BY c.source DESC,", 1),
    };
    let limit = query.limit + 1;

    let walks: Vec<String> = who
        .iter()
        .flat_map(|who| sources.iter().map(move |source| (who, source)))
        .map(|(who, source)| {
            format!(
                "SELECT * FROM (SELECT {columns} FROM chat_conversations c \
                 WHERE {who} AND {source} AND {filters} AND {seek} {walk_order} LIMIT {limit}) walk"
            )
        })
        .collect();
    sql.text = if walks.len() == 1 {
        walks.concat()
    } else {
        format!("SELECT * FROM ({}) c {order} LIMIT {limit}", walks.join(" UNION ALL "))
    };
    sql
}

/// Turns the rows of `list` into the page that was asked for.
pub(crate) fn page<T>(mut rows: Vec<T>, query: &ConversationQuery) -> domain::conversation::Page<T> {
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    let (has_before, has_after) = match query.seek {
        Seek::Start => (false, more),
        Seek::After(_) => (true, more),
        Seek::Before(_) => {
            rows.reverse();
            (more, true)
        }
    };
    domain::conversation::Page { items: rows, has_before, has_after }
}

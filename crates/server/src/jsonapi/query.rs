//! The query strings of `/v1/chat-conversations`: raw text in, one typed struct for each kind of request out,
//! or every mistake at once, each naming its parameter.

use std::ops::RangeInclusive;

use domain::conversation::{ConversationFilter, Kind, Mode, Seek, Sort, Source as Surface};
use uuid::Uuid;

use super::cursor::{CursorFault, decode_offset, decode_position, parse_sort};
use super::error::{ApiError, ErrorDocument, Source, shown};
use super::field::{Field, FieldSet, WorkspaceField};
use super::params::Params;
use super::{CONVERSATION, WORKSPACE};

pub const DEFAULT_PAGE_SIZE: usize = 50;
pub const PAGE_SIZES: RangeInclusive<usize> = 1..=100;
/// A retrieve without a window has all messages, however many, so that no window of so many costs more.
pub const MESSAGE_WINDOWS: RangeInclusive<usize> = 1..=1_000_000;
const MAX_AGENT_CHARS: usize = 255;
const MAX_QUERY_CHARS: usize = 1000;

const VIEW: [&str; 4] = ["fields[chat_conversation]", "fields[workspace]", "include", "workspace"];
const RETRIEVE: [&str; 3] = ["page[messages]", "page[messages_before]", "branchId"];
const LIST: [&str; 12] = [
    "sort",
    "page[size]",
    "page[after]",
    "page[before]",
    "filter[workspace]",
    "filter[source]",
    "filter[mode]",
    "filter[kind]",
    "filter[agent]",
    "filter[query]",
    "filter[deleted]",
    "timeZone",
];

/// What an answer shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub fields: FieldSet,
    /// In the order of `WorkspaceField::ALL`.
    pub workspace_fields: Vec<WorkspaceField>,
    pub include_workspace: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    pub view: View,
    pub workspace: Option<Uuid>,
    pub filter: ConversationFilter,
    pub page: ListPage,
    /// How many resources the page may have.
    pub page_size: usize,
    /// As sent; whether such a zone exists is for the reader of the time zone database to say.
    pub time_zone: Option<String>,
}

/// Which page of which list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListPage {
    Sorted {
        sort: Sort,
        seek: Seek,
        limit: usize,
    },
    /// `filter[query]` was given; no `sort` is best first.
    Search {
        query: String,
        sort: Option<Sort>,
        offset: u32,
        limit: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrieveQuery {
    pub view: View,
    pub workspace: Option<Uuid>,
    /// At most so many messages, the newest ones (before `messages_before`).
    pub messages: Option<usize>,
    pub messages_before: Option<Uuid>,
    /// `None` is the current branch.
    pub branch: Option<Uuid>,
}

/// The parameters of create, update, delete and restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteQuery {
    pub view: View,
    pub workspace: Option<Uuid>,
}

impl ListQuery {
    pub fn parse(raw: &str) -> Result<Self, ErrorDocument> {
        let mut reader = Reader::new(raw, &[&VIEW[..], &LIST].concat());
        let view = reader.view(FieldSet::LIST);
        let workspace = reader.list_workspace();
        let filter = ConversationFilter {
            source: reader.word("filter[source]", Surface::ALL, Surface::parse),
            mode: reader.word("filter[mode]", Mode::ALL, Mode::parse),
            kind: reader.word("filter[kind]", Kind::ALL, Kind::parse),
            agent: reader.text("filter[agent]", MAX_AGENT_CHARS),
            deleted: reader.word("filter[deleted]", &["true", "false"], |v| v.parse().ok()).unwrap_or(false),
        };
        let page_size = reader.number("page[size]", PAGE_SIZES).unwrap_or(DEFAULT_PAGE_SIZE);
        let page = reader.list_page(page_size);
        let time_zone = reader.params.get("timeZone").map(str::to_owned);
        reader.errors.or(Self { view, workspace, filter, page, page_size, time_zone })
    }
}

impl RetrieveQuery {
    pub fn parse(raw: &str) -> Result<Self, ErrorDocument> {
        let mut reader = Reader::new(raw, &[&VIEW[..], &RETRIEVE].concat());
        let found = Self {
            view: reader.view(FieldSet::ALL),
            workspace: reader.uuid("workspace"),
            messages: reader.number("page[messages]", MESSAGE_WINDOWS),
            messages_before: reader.uuid("page[messages_before]"),
            branch: reader.uuid("branchId"),
        };
        reader.errors.or(found)
    }
}

impl WriteQuery {
    pub fn parse(raw: &str) -> Result<Self, ErrorDocument> {
        let mut reader = Reader::new(raw, &VIEW);
        let found = Self { view: reader.view(FieldSet::ALL), workspace: reader.uuid("workspace") };
        reader.errors.or(found)
    }
}

/// A UUID in its usual form only: 36 characters with hyphens.
pub(super) fn parse_uuid(text: &str) -> Option<Uuid> {
    if text.len() == 36 { Uuid::try_parse(text).ok() } else { None }
}

/// Reads one parameter after the other and gathers what is wrong with them.
struct Reader {
    params: Params,
    errors: ErrorDocument,
}

impl Reader {
    fn new(raw: &str, known: &[&'static str]) -> Self {
        let mut errors = ErrorDocument::default();
        Self { params: Params::read(raw, known, &mut errors), errors }
    }

    fn refuse(&mut self, name: &str, detail: String) {
        self.errors.push(ApiError::invalid_parameter(Source::parameter(name), detail));
    }

    /// The value of a parameter; one that `parse` does not take is refused with what was `expected`.
    fn value<T>(&mut self, name: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = self.params.get(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            let detail = format!("{name} is {}; it must be {expected}.", shown(value));
            self.refuse(name, detail);
        }
        parsed
    }

    fn uuid(&mut self, name: &str) -> Option<Uuid> {
        self.value(name, "a UUID", parse_uuid)
    }

    fn number(&mut self, name: &str, range: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.value(name, &expected, |text| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|number| digits && range.contains(number))
        })
    }

    fn word<T>(&mut self, name: &str, words: &[&str], parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.value(name, &format!("one of {}", words.join(", ")), parse)
    }

    fn text(&mut self, name: &str, max_chars: usize) -> Option<String> {
        self.value(name, &format!("1 to {max_chars} characters, not only blanks"), |text| {
            let fits = !text.trim().is_empty() && text.chars().count() <= max_chars;
            fits.then(|| text.to_owned())
        })
    }

    fn view(&mut self, default: FieldSet) -> View {
        let include = self.value("include", "workspace or empty", |text| match text {
            "" => Some(false),
            text => text.split(',').all(|path| path == WORKSPACE).then_some(true),
        });
        View {
            fields: self.conversation_fields().unwrap_or(default),
            workspace_fields: self.workspace_fields(),
            include_workspace: include.unwrap_or(false),
        }
    }

    fn conversation_fields(&mut self) -> Option<FieldSet> {
        let mut set = FieldSet::NONE;
        for name in self.names(VIEW[0])? {
            match Field::parse(&name) {
                Some(field) => set = set.with(field),
                // A relationship is a field as well.
                None if name == WORKSPACE => set = set.with_workspace(),
                None => self.unknown_field(VIEW[0], &name, CONVERSATION),
            }
        }
        Some(set)
    }

    fn workspace_fields(&mut self) -> Vec<WorkspaceField> {
        let Some(names) = self.names(VIEW[1]) else { return WorkspaceField::ALL.to_vec() };
        for name in names.iter().filter(|name| WorkspaceField::parse(name).is_none()) {
            self.unknown_field(VIEW[1], name, WORKSPACE);
        }
        let asked = |field: &WorkspaceField| names.iter().any(|name| name == field.name());
        WorkspaceField::ALL.iter().copied().filter(asked).collect()
    }

    /// The names of a comma list; the empty list has none.
    fn names(&self, name: &str) -> Option<Vec<String>> {
        match self.params.get(name)? {
            "" => Some(Vec::new()),
            list => Some(list.split(',').map(str::to_owned).collect()),
        }
    }

    fn unknown_field(&mut self, parameter: &str, name: &str, kind: &str) {
        self.errors.push(ApiError::unknown_field(
            Source::parameter(parameter),
            format!("{} is not a field of {kind}.", shown(name)),
        ));
    }

    /// A list's workspace may be named as a filter or plainly, but not as two different ones.
    fn list_workspace(&mut self) -> Option<Uuid> {
        let (plain, filter) = (self.uuid("workspace"), self.uuid("filter[workspace]"));
        if let (Some(plain), Some(filter)) = (plain, filter)
            && plain != filter
        {
            self.refuse("filter[workspace]", "workspace and filter[workspace] differ; give one.".into());
        }
        plain.or(filter)
    }

    fn list_page(&mut self, limit: usize) -> ListPage {
        let sort = self.sort();
        if self.params.get("page[after]").is_some() && self.params.get("page[before]").is_some() {
            self.refuse("page[before]", "page[after] and page[before] exclude each other; give one.".into());
        }
        if self.params.get("filter[query]").is_some() {
            let query = self.text("filter[query]", MAX_QUERY_CHARS).unwrap_or_default();
            let (offset, limit) = self.search_seek(sort, limit);
            return ListPage::Search { query, sort, offset, limit };
        }
        let sort = sort.unwrap_or_default();
        let after = self.cursor("page[after]", |text| decode_position(text, sort));
        let before = self.cursor("page[before]", |text| decode_position(text, sort));
        let seek = after.map(Seek::After).or(before.map(Seek::Before)).unwrap_or(Seek::Start);
        ListPage::Sorted { sort, seek, limit }
    }

    fn sort(&mut self) -> Option<Sort> {
        let several = self.params.get("sort")?.contains(',');
        if several {
            self.refuse("sort", "One sort key is supported; give one.".into());
            return None;
        }
        self.value("sort", "updated_at, created_at or title, with a - before it for descending", parse_sort)
    }

    /// Offset and limit of a page of search results. The page before a place ends there, however short.
    fn search_seek(&mut self, sort: Option<Sort>, limit: usize) -> (u32, usize) {
        if let Some(offset) = self.cursor("page[after]", |text| decode_offset(text, sort)) {
            return (offset, limit);
        }
        // Nothing is before the first result, so no link leads there.
        let before = self.cursor("page[before]", |text| match decode_offset(text, sort)? {
            0 => Err(CursorFault::Unreadable),
            end => Ok(end),
        });
        match before {
            Some(end) => {
                let length = u32::try_from(limit).map_or(end, |limit| limit.min(end));
                (end - length, length as usize)
            }
            None => (0, limit),
        }
    }

    fn cursor<T>(&mut self, name: &str, decode: impl FnOnce(&str) -> Result<T, CursorFault>) -> Option<T> {
        match decode(self.params.get(name)?) {
            Ok(place) => Some(place),
            Err(fault) => {
                self.refuse(name, format!("The cursor in {name} cannot be used: {fault}."));
                None
            }
        }
    }
}

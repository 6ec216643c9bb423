//! A conversation as lines of an export tell of it: one, or where that would be too long for a line, parts of it first,
//! each with messages of one branch or with runs, and then the line that they are joined with.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Refusal;
use super::archive::{Archive, ArchivedBranch, ArchivedRun};
use super::block::read_block;
use super::file_line::FileLine;
use super::own::{line, parse, raw, time};
use super::run_line::RunLine;
use crate::approval::Approval;
use crate::conversation::{Conversation, Kind, Mode, Source as Surface, Visibility};
use crate::event::{Raw, Source};
use crate::file::{Attachment, Bag};
use crate::message::{Message, MessageRole, plain_text};
use crate::tab::Tab;
use crate::time::{from_ms, rfc3339};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationLine {
    r#type: String,
    id: Uuid,
    user_id: String,
    title: Option<String>,
    kind: Kind,
    mode: Option<Mode>,
    source: Option<Surface>,
    page_path: Option<String>,
    visibility: Visibility,
    workflow_id: Option<String>,
    agent_id: Option<String>,
    model: Option<String>,
    preview: Option<String>,
    conversation_id: Option<Uuid>,
    total_tokens: i64,
    created_at: String,
    updated_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Raw>,
    context: Option<Raw>,
    tabs: Vec<Tab>,
    active_tab_key: Option<String>,
    current_branch: Uuid,
    /// How many parts of it stand before this line.
    #[serde(default, skip_serializing_if = "is_zero")]
    parts: usize,
    branches: Vec<BranchLine>,
    runs: Vec<RunLine>,
    files: Vec<FileLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchLine {
    id: Uuid,
    /// Null for the first.
    parent: Option<Uuid>,
    from_message: Option<Uuid>,
    created_at: String,
    messages: Vec<MessageLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MessageLine {
    id: Uuid,
    role: MessageRole,
    content: Vec<Raw>,
    file_attachments: Vec<Attachment>,
    sources: Vec<Source>,
    token_count: i64,
    metadata: Raw,
    created_at: i64,
}

/// Messages of one branch, or runs. In their order they come before those that the line of the conversation holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartLine {
    r#type: String,
    conversation: Uuid,
    /// Whose messages these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    branch: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessageLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs: Vec<RunLine>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl ConversationLine {
    /// The parts that go before it, and the line: each with at most `part_bytes` of messages or runs, and one more.
    pub fn of(archive: &Archive, part_bytes: usize) -> Result<(Vec<PartLine>, Self), Refusal> {
        let of = &archive.conversation;
        let branches =
            archive.branches.iter().enumerate().map(|(at, branch)| branch_line(archive, at, branch));
        let mut whole = Self {
            r#type: "conversation".into(),
            id: of.id,
            user_id: of.owner.clone(),
            title: of.title.clone(),
            kind: of.kind,
            mode: of.mode,
            source: of.source,
            page_path: of.page_path.clone(),
            visibility: of.visibility,
            workflow_id: of.workflow_id.clone(),
            agent_id: of.agent_id.clone(),
            model: of.model.clone(),
            preview: of.preview.clone(),
            conversation_id: of.first_message,
            total_tokens: of.total_tokens,
            created_at: rfc3339(of.created_at),
            updated_at: rfc3339(of.updated_at),
            metadata: archive.metadata.as_deref().map(raw).transpose()?,
            context: of.context.as_deref().map(raw).transpose()?,
            tabs: of.tabs.clone(),
            active_tab_key: of.active_tab_key.clone(),
            current_branch: archive.branches.get(archive.current).map_or(of.id, |branch| branch.id),
            branches: branches.collect::<Result<_, _>>()?,
            parts: 0,
            runs: archive.runs.iter().map(|run| run_line(archive, run)).collect::<Result<_, _>>()?,
            files: archive.files.iter().map(FileLine::of).collect(),
        };
        let parts = whole.split(archive, part_bytes);
        whole.parts = parts.len();
        Ok((parts, whole))
    }

    /// Takes out what is too much for one line.
    fn split(&mut self, archive: &Archive, part_bytes: usize) -> Vec<PartLine> {
        let (mut parts, mut kept) = (Vec::new(), 0);
        let id = self.id;
        let part = |branch, messages, runs| PartLine {
            r#type: "part".into(),
            conversation: id,
            branch,
            messages,
            runs,
        };
        for (branch, of) in self.branches.iter_mut().zip(&archive.branches) {
            let weights = of.messages.iter().map(message_bytes).collect::<Vec<_>>();
            for count in cuts(&weights, part_bytes, &mut kept) {
                parts.push(part(Some(branch.id), branch.messages.drain(..count).collect(), Vec::new()));
            }
        }
        let weights = archive.runs.iter().map(run_bytes).collect::<Vec<_>>();
        for count in cuts(&weights, part_bytes, &mut kept) {
            parts.push(part(None, Vec::new(), self.runs.drain(..count).collect()));
        }
        parts
    }

    /// The conversation, with its parts in their order.
    pub fn join(
        mut self,
        parts: impl IntoIterator<Item = Result<PartLine, Refusal>>,
    ) -> Result<Archive, Refusal> {
        let (mut count, mut runs) = (0, Vec::new());
        let mut messages: HashMap<Uuid, Vec<MessageLine>> = HashMap::new();
        for part in parts {
            let part = part?;
            if part.conversation != self.id {
                return Err(Refusal(format!(
                    "a part of the conversation {} stands before it",
                    part.conversation
                )));
            }
            count += 1;
            if !part.messages.is_empty() {
                messages.entry(part.branch.unwrap_or(self.id)).or_default().extend(part.messages);
            }
            runs.extend(part.runs);
        }
        if count != self.parts {
            return Err(Refusal(format!("{count} of its {} parts are in the export", self.parts)));
        }
        for branch in &mut self.branches {
            if let Some(mut first) = messages.remove(&branch.id) {
                first.append(&mut branch.messages);
                branch.messages = first;
            }
        }
        if let Some(branch) = messages.into_keys().next() {
            return Err(Refusal(format!("a part of it is of the branch {branch}, which is not there")));
        }
        runs.append(&mut self.runs);
        self.runs = runs;
        read_conversation(self)
    }
}

/// How many of these go into each part. What is left may stay where `kept` of others do.
fn cuts(weights: &[usize], part_bytes: usize, kept: &mut usize) -> Vec<usize> {
    let (mut cuts, mut count, mut bytes) = (Vec::new(), 0, 0);
    for weight in weights {
        (count, bytes) = (count + 1, bytes + weight);
        if bytes >= part_bytes {
            cuts.push(count);
            (count, bytes) = (0, 0);
        }
    }
    if *kept + bytes > part_bytes {
        cuts.push(count);
    } else {
        *kept += bytes;
    }
    cuts
}

/// About how long it is in a line.
fn message_bytes(of: &Message) -> usize {
    of.content.len() + of.file_attachments.len() + of.sources.len() + of.metadata.len()
}

fn run_bytes(of: &ArchivedRun) -> usize {
    let call = |of: &Approval| {
        let result = of.decision.as_ref().and_then(|decision| decision.result.as_deref());
        of.call.args.get().len() + result.map_or(0, str::len)
    };
    of.asked.as_deref().map_or(0, str::len) + of.approvals.iter().map(call).sum::<usize>()
}

fn run_line(archive: &Archive, of: &ArchivedRun) -> Result<RunLine, Refusal> {
    let branch = archive.branches.get(of.branch).map_or(archive.conversation.id, |branch| branch.id);
    RunLine::of(of, Some(branch))
}

fn branch_line(archive: &Archive, at: usize, branch: &ArchivedBranch) -> Result<BranchLine, Refusal> {
    let parent = (at > 0).then(|| archive.branches.get(branch.parent)).flatten();
    let shared = parent.and_then(|_| {
        archive.thread(branch.parent).into_iter().find(|message| message.seq == branch.fork_seq)
    });
    Ok(BranchLine {
        id: branch.id,
        parent: parent.map(|parent| parent.id),
        from_message: shared.map(|message| message.id),
        created_at: rfc3339(branch.created_at),
        messages: branch.messages.iter().map(message_line).collect::<Result<_, _>>()?,
    })
}

fn message_line(message: &Message) -> Result<MessageLine, Refusal> {
    Ok(MessageLine {
        id: message.id,
        role: message.role,
        content: parse(&message.content)?,
        file_attachments: parse(&message.file_attachments)?,
        sources: parse(&message.sources)?,
        token_count: message.token_count,
        metadata: raw(&message.metadata)?,
        created_at: message.created_at.as_millisecond(),
    })
}

fn read_conversation(of: ConversationLine) -> Result<Archive, Refusal> {
    let (branches, current) = read_branches(&of)?;
    let places: HashMap<Uuid, usize> =
        branches.iter().enumerate().map(|(at, branch)| (branch.id, at)).collect();
    let mut archive = Archive {
        conversation: Conversation {
            id: of.id,
            workspace: Uuid::nil(),
            org: String::new(),
            owner: of.user_id,
            title: of.title,
            mode: of.mode,
            source: of.source,
            page_path: of.page_path,
            total_tokens: of.total_tokens,
            tabs: of.tabs,
            active_tab_key: of.active_tab_key,
            kind: of.kind,
            workflow_id: of.workflow_id,
            agent_id: of.agent_id,
            model: of.model,
            preview: of.preview,
            message_count: 0,
            first_message: of.conversation_id,
            visibility: of.visibility,
            context: of.context.map(|context| context.get().to_owned()),
            deleted_at: None,
            created_at: time(&of.created_at)?,
            updated_at: time(&of.updated_at)?,
            version: 1,
        },
        metadata: of.metadata.map(|metadata| metadata.get().to_owned()),
        branches,
        current,
        runs: of
            .runs
            .into_iter()
            .map(|run| {
                let named = run.branch.and_then(|branch| places.get(&branch).copied());
                let refusal = Refusal(format!("the run {} stands on a branch that is not there", run.id));
                Ok(ArchivedRun { branch: named.ok_or(refusal)?, ..run.read(Some(of.id), None)? })
            })
            .collect::<Result<_, _>>()?,
        files: of
            .files
            .into_iter()
            .map(|file| file.read(Bag::Conversation(of.id)))
            .collect::<Result<_, _>>()?,
    };
    archive.conversation.message_count = archive.thread(current).len() as i64;
    Ok(archive)
}

/// The branches in their order, and which of them is current.
fn read_branches(of: &ConversationLine) -> Result<(Vec<ArchivedBranch>, usize), Refusal> {
    let mut branches: Vec<ArchivedBranch> = Vec::with_capacity(of.branches.len());
    // Where every message stands: its branch and number.
    let mut places: HashMap<Uuid, i64> = HashMap::new();
    let mut known: HashMap<Uuid, usize> = HashMap::new();
    for branch in &of.branches {
        let refuse = |what: &str| Refusal(format!("the branch {} {what}", branch.id));
        let parent = match (&branch.parent, branches.is_empty()) {
            (None, true) => 0,
            (Some(parent), false) => {
                *known.get(parent).ok_or_else(|| refuse("comes from a branch that is not before it"))?
            }
            _ => return Err(refuse("must name its parent, unless it is the first")),
        };
        let fork_seq = match branch.from_message {
            None => 0,
            Some(id) => {
                *places.get(&id).ok_or_else(|| refuse("begins at a message that is not before it"))?
            }
        };
        let mut messages = Vec::with_capacity(branch.messages.len());
        for (message, seq) in branch.messages.iter().zip(fork_seq + 1..) {
            let read = read_message(message, seq)
                .map_err(|fault| Refusal(format!("the message {}: {fault}", message.id)))?;
            places.insert(read.id, seq);
            messages.push(read);
        }
        known.insert(branch.id, branches.len());
        let created_at = time(&branch.created_at)?;
        branches.push(ArchivedBranch { id: branch.id, parent, fork_seq, created_at, messages });
    }
    let current =
        known.get(&of.current_branch).copied().ok_or_else(|| Refusal::new("current_branch is not there"))?;
    Ok((branches, current))
}

fn read_message(of: &MessageLine, seq: i64) -> Result<Message, Refusal> {
    let blocks = of.content.iter().map(|block| read_block(block)).collect::<Result<Vec<_>, _>>()?;
    if !of.metadata.get().starts_with('{') {
        return Err(Refusal::new("metadata is not an object"));
    }
    Ok(Message {
        id: of.id,
        seq,
        role: of.role,
        text: plain_text(&blocks),
        content: line(&blocks)?,
        file_attachments: line(&of.file_attachments)?,
        sources: line(&of.sources)?,
        token_count: of.token_count,
        metadata: of.metadata.get().to_owned(),
        created_at: from_ms(of.created_at),
    })
}

#[cfg(test)]
mod tests {
    use super::super::own::{Line, read_line};
    use super::*;

    fn id(n: u32) -> String {
        format!("0192f0c1-0000-7000-8000-{n:012}")
    }

    fn messages(of: &[u32]) -> String {
        let spelled = of.iter().map(|n| {
            format!(
                r#"{{"id":"{}","role":"user","content":[{{"type":"text","text":"{n}"}}],"fileAttachments":[],"sources":[],"tokenCount":0,"metadata":{{}},"createdAt":{n}}}"#,
                id(*n)
            )
        });
        spelled.collect::<Vec<_>>().join(",")
    }

    /// A conversation with a branch and two runs, in one line.
    fn one_line() -> String {
        let at = r#""created_at":"2026-01-01T00:00:00.000Z""#;
        let branch = |n: u32, parent: &str, of: &[u32]| {
            format!(r#"{{"id":"{}",{parent},{at},"messages":[{}]}}"#, id(n), messages(of))
        };
        let first = branch(1, r#""parent":null,"from_message":null"#, &[10, 11, 12]);
        let forked = format!(r#""parent":"{}","from_message":"{}""#, id(1), id(11));
        let second = branch(2, &forked, &[20, 21]);
        let run = |n: u32| {
            format!(
                r#"{{"id":"{}","status":"succeeded","branch":"{}","message":"{}","assistant_message":null,"user_id":"u","usage":{{"input_tokens":0,"output_tokens":0}},"error":null,"last_event":0,"on_disconnect":"cancel",{at},"started_at":null,"ended_at":null,"asked":{{"message":"{n}"}}}}"#,
                id(n),
                id(2),
                id(20)
            )
        };
        format!(
            r#"{{"type":"conversation","id":"{0}","user_id":"u","title":null,"kind":"model_chat","mode":null,"source":null,"page_path":null,"visibility":"private","workflow_id":null,"agent_id":null,"model":null,"preview":null,"conversation_id":null,"total_tokens":0,{at},"updated_at":"2026-01-01T00:00:00.000Z","context":null,"tabs":[],"active_tab_key":null,"current_branch":"{1}","branches":[{first},{second}],"runs":[{2},{3}],"files":[]}}"#,
            id(1),
            id(2),
            run(30),
            run(31)
        )
    }

    fn conversation(text: &str) -> ConversationLine {
        match read_line(text).unwrap() {
            Line::Conversation(line) => *line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_and_the_rest_are_the_conversation_again() {
        let text = one_line();
        let archive = conversation(&text).join([]).unwrap();
        for (part_bytes, count) in [(usize::MAX, 0), (100, 2), (1, 7)] {
            let (parts, whole) = ConversationLine::of(&archive, part_bytes).unwrap();
            assert_eq!((parts.len(), whole.parts), (count, count));
            let parts = parts.into_iter().map(|part| match read_line(&line(&part)?)? {
                Line::Part(part) => Ok(part),
                other => panic!("{other:?}"),
            });
            let joined = conversation(&line(&whole).unwrap()).join(parts.collect::<Vec<_>>()).unwrap();
            let (parts, again) = ConversationLine::of(&joined, usize::MAX).unwrap();
            assert_eq!((parts.len(), line(&again).unwrap()), (0, text.clone()), "{part_bytes}");
        }
    }

    #[test]
    fn parts_that_are_not_its_own_or_not_all_are_refused() {
        let archive = conversation(&one_line()).join([]).unwrap();
        let told = |change: fn(&mut Vec<PartLine>)| {
            let (mut parts, whole) = ConversationLine::of(&archive, 1).unwrap();
            change(&mut parts);
            whole.join(parts.into_iter().map(Ok)).unwrap_err().0
        };
        assert!(told(|parts| drop(parts.pop())).contains("6 of its 7 parts"));
        assert!(told(|parts| parts[0].conversation = Uuid::nil()).contains("a part of the conversation"));
        assert!(told(|parts| parts[0].branch = Some(Uuid::nil())).contains("which is not there"));
    }
}

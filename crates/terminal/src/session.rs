//! A conversation with a server, as far as it has come: what every way of showing it shares.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::Server;
use crate::failure::Failure;
use crate::files::{Chosen, Kept};
use crate::{Open, Options};

#[derive(Debug, Clone)]
pub struct Session {
    pub server: Server,
    pub conversation: Option<Uuid>,
    /// It, where it was made for files and no turn has begun there.
    made: Option<Uuid>,
    mode: Option<String>,
    model: Option<String>,
    agent: Option<String>,
}

/// What a turn is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Message(String),
    /// A user message said otherwise.
    Edit(Uuid, String),
    /// The answer to a user message once more.
    Again(Uuid),
}

impl Session {
    pub async fn open(options: &Options) -> Result<Self, Failure> {
        let server = Server::new(&options.server, options.key.clone(), options.workspace)?;
        let conversation = match options.open {
            Open::New | Open::Pick => None,
            Open::Conversation(id) => {
                // What is not there is told before anything is typed.
                server.thread(id, 1).await?;
                Some(id)
            }
            Open::Continue => match server.list("", 1).await?.first() {
                Some(newest) => Some(newest.id),
                None => return Err(Failure::Here("there is no conversation to continue yet".to_owned())),
            },
        };
        let (mode, model, agent) = (options.mode.clone(), options.model.clone(), options.agent.clone());
        Ok(Self { server, conversation, made: None, mode, model, agent })
    }

    /// Uploads what is to be attached; a new conversation is made for it, and is gone again when they are refused.
    pub async fn attach(&mut self, files: &[Chosen]) -> Result<Vec<Kept>, Failure> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let conversation = match self.conversation {
            Some(known) => known,
            None => {
                let made = self.server.create_conversation(self.mode.as_deref()).await?;
                self.made = Some(made);
                *self.conversation.insert(made)
            }
        };
        let kept = self.server.upload(conversation, files).await;
        if kept.is_err() {
            self.take_back().await;
        }
        kept
    }

    /// A turn has begun in the conversation: it stays.
    pub fn began(&mut self) {
        self.made = None;
    }

    /// Lets go of a conversation that was made for files and will have no turn.
    pub fn unmake(&mut self) -> Option<Uuid> {
        let made = self.made.take()?;
        self.conversation = None;
        Some(made)
    }

    /// As `unmake`, and deletes it.
    pub async fn take_back(&mut self) {
        if let Some(made) = self.unmake() {
            // What was refused is what is told of. One that cannot be deleted is empty, and no more.
            let _ = self.server.delete_conversation(made).await;
        }
    }

    /// The body of `POST /v1/turns`. The run goes on without us: a connection that breaks must not end it.
    pub fn turn(&self, ask: &Ask, attached: &[Kept]) -> Value {
        let mut body = json!({ "on_disconnect": "continue" });
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[name] = value;
            }
        };
        match ask {
            Ask::Message(text) => {
                set("message", Some(text.as_str().into()));
                // Whatever else is going on there, the question is answered in its turn.
                set("on_busy", Some("enqueue".into()));
            }
            Ask::Edit(message, text) => {
                set("replace", Some(message.to_string().into()));
                set("message", Some(text.as_str().into()));
            }
            Ask::Again(message) => set("replace", Some(message.to_string().into())),
        }
        set("conversation", self.conversation.map(|id| id.to_string().into()));
        if !attached.is_empty() {
            let ids: Vec<Value> = attached.iter().map(|file| file.id.to_string().into()).collect();
            set("attachments", Some(ids.into()));
        }
        for (name, value) in [("mode", &self.mode), ("model", &self.model), ("agent", &self.agent)] {
            set(name, value.as_deref().map(Value::from));
        }
        body
    }
}

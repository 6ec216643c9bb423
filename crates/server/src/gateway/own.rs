//! An answer in the provider's own words, for a client that speaks its dialect: its events go on as they came, but for
//! the model's name and what the client did not ask for. Where no own words come it is told by the dialect's writer.

use domain::model::{Dialect, ModelEvent, Own};
use serde_json::Value;

use super::whole::Whole;
use super::{Asked, Writer, anthropic, frame, openai};

pub struct OwnWords {
    dialect: Dialect,
    model: String,
    stream: bool,
    include_usage: bool,
    translated: Box<dyn Writer>,
    /// The provider's own words have begun: nothing is translated from there on.
    begun: bool,
    /// Its stream has been ended in its own words.
    over: bool,
    whole: Whole,
}

impl OwnWords {
    pub fn new(dialect: Dialect, asked: &Asked, translated: Box<dyn Writer>) -> Self {
        Self {
            dialect,
            model: asked.model.clone(),
            stream: asked.stream,
            include_usage: asked.include_usage,
            whole: Whole::new(dialect, translated.whole()),
            translated,
            begun: false,
            over: false,
        }
    }

    fn own(&mut self, name: &str, data: &str, out: &mut Vec<u8>) {
        let Ok(mut data) = serde_json::from_str::<Value>(data) else {
            // The one event that is no JSON.
            self.end(out);
            return;
        };
        let place = if data["type"] == "message_start" { &mut data["message"] } else { &mut data };
        if let Some(model) = place.get_mut("model") {
            *model = self.model.as_str().into();
        }
        if !self.stream {
            self.whole.push(&data);
            return;
        }
        match self.dialect {
            Dialect::Openai if !self.include_usage && tells_usage_alone(&data) => {}
            Dialect::Openai => {
                if let Some(chunk) = data.as_object_mut().filter(|_| !self.include_usage) {
                    chunk.retain(|name, value| name != "usage" || !value.is_null());
                }
                frame((!name.is_empty()).then_some(name), &data, out);
            }
            Dialect::Anthropic => {
                self.over |= data["type"] == "message_stop";
                frame(data["type"].as_str(), &data, out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.over, true) || !self.stream {
            return;
        }
        match self.dialect {
            Dialect::Openai => out.extend_from_slice(b"data: [DONE]\n\n"),
            Dialect::Anthropic => {
                frame(Some("message_stop"), &serde_json::json!({ "type": "message_stop" }), out);
            }
        }
    }
}

/// The chunk that is there because we asked for it.
fn tells_usage_alone(chunk: &Value) -> bool {
    chunk["choices"].as_array().is_some_and(Vec::is_empty) && chunk["usage"].is_object()
}

impl Writer for OwnWords {
    fn event(&mut self, event: &ModelEvent, out: &mut Vec<u8>) {
        match event {
            ModelEvent::Own(Own::Event { name, data }) => {
                self.begun = true;
                self.own(name, data, out);
            }
            ModelEvent::Own(Own::Whole(body)) if !self.stream => {
                self.begun = true;
                let mut body = body.clone();
                if let Some(model) = body.get_mut("model") {
                    *model = self.model.as_str().into();
                }
                self.whole = Whole::Said(body);
            }
            ModelEvent::End(Ok(_)) if self.begun => self.end(out),
            ModelEvent::End(Err(fault)) if self.begun => match self.dialect {
                Dialect::Openai => {
                    openai::failure(fault, out);
                    self.end(out);
                }
                Dialect::Anthropic => anthropic::failure(fault, out),
            },
            _ if self.begun => {}
            event => self.translated.event(event, out),
        }
    }

    fn whole(&self) -> Value {
        if self.begun { self.whole.value() } else { self.translated.whole() }
    }
}

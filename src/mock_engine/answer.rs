//! The forms of an answer: whole or as a stream, for each API.

mod anthropic;
mod openai;
mod responses;

use serde_json::Value;

use super::model::Finish;
use super::prompt::Prompt;

/// Words that answers are made of.
const WORDS: [&str; 8] = ["the", "tide", "comes", "in", "and", "the", "gate", "holds"];

/// Which API an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Chat,
    Completion,
    Responses,
    Messages,
}

/// What an answer is about.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    form: Form,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: u64,
    generated: u64,
    usage: bool,
}

impl Answer {
    /// `created`: seconds since 1970.
    pub(super) fn new(form: Form, prompt: &Prompt, created: u64) -> Self {
        let prefix = match form {
            Form::Chat => "chatcmpl-",
            Form::Completion => "cmpl-",
            Form::Responses => "resp_",
            Form::Messages => "msg_",
        };
        Self {
            form,
            id: format!("{prefix}{}", uuid::Uuid::now_v7().simple()),
            created,
            model: prompt.model.clone(),
            prompt_tokens: prompt.prompt_tokens,
            generated: 0,
            usage: prompt.usage,
        }
    }

    /// The text of the next token.
    fn word(&mut self) -> String {
        let index = usize::try_from(self.generated).unwrap_or(0) % WORDS.len();
        self.generated += 1;
        let word = WORDS.get(index).copied().unwrap_or_default();
        if self.generated == 1 { word.to_owned() } else { format!(" {word}") }
    }

    fn text(&self) -> String {
        let mut again = Self { generated: 0, ..self.clone() };
        (0..self.generated).map(|_| again.word()).collect()
    }

    /// Counts a token of an answer that is sent whole.
    pub(super) fn count(&mut self) {
        self.generated += 1;
    }

    /// The answer, whole.
    pub(super) fn whole(&self, finish: Finish) -> Value {
        match self.form {
            Form::Chat => openai::chat(self, finish),
            Form::Completion => openai::completion(self, finish),
            Form::Responses => responses::whole(self, finish),
            Form::Messages => anthropic::whole(self, finish),
        }
    }

    /// What a stream begins with.
    pub(super) fn begin(&self) -> String {
        match self.form {
            Form::Chat => openai::chat_begin(self),
            Form::Completion => String::new(),
            Form::Responses => responses::begin(self),
            Form::Messages => anthropic::begin(self),
        }
    }

    /// One token of a stream.
    pub(super) fn token(&mut self) -> String {
        let word = self.word();
        match self.form {
            Form::Chat => openai::chat_token(self, &word),
            Form::Completion => openai::completion_token(self, &word),
            Form::Responses => responses::token(self, &word),
            Form::Messages => anthropic::token(&word),
        }
    }

    /// What a stream ends with.
    pub(super) fn end(&self, finish: Finish) -> String {
        match self.form {
            Form::Chat => openai::chat_end(self, finish),
            Form::Completion => openai::completion_end(self, finish),
            Form::Responses => responses::end(self, finish),
            Form::Messages => anthropic::end(self, finish),
        }
    }
}

/// An unnamed event.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A named event, whose name is the `type` in its data.
fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

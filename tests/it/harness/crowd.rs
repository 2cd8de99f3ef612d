//! Many requests at the same moment.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::http::{Answer, Connection, request};
use super::wait::eventually;

/// Requests under way, turn about at several frontends.
#[derive(Debug)]
pub(crate) struct Crowd {
    tasks: JoinSet<Answer>,
    answers: Vec<Answer>,
}

impl Crowd {
    /// Opens `count` connections, then sends the chat request `body` on all of them at once.
    pub(crate) async fn start(addresses: &[SocketAddr], count: usize, body: &Value) -> Self {
        let barrier = Arc::new(Barrier::new(count + 1));
        let headers = "Content-Type: application/json\r\nConnection: close\r\n";
        let bytes = Arc::new(request("POST", "/v1/chat/completions", headers, body.to_string().as_bytes()));
        let mut tasks = JoinSet::new();
        for &address in addresses.iter().cycle().take(count) {
            let (barrier, bytes) = (barrier.clone(), bytes.clone());
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await.expect("the frontend listens");
                barrier.wait().await;
                connection.send(&*bytes).await.expect("the frontend reads");
                connection.answer().await.expect("the frontend answers")
            });
        }
        barrier.wait().await;
        Self { tasks, answers: Vec::new() }
    }

    /// The answers so far.
    pub(crate) fn answers(&mut self) -> &[Answer] {
        while let Some(answer) = self.tasks.try_join_next() {
            self.answers.push(answer.expect("no panic"));
        }
        &self.answers
    }

    /// Waits until so many have their answers.
    pub(crate) async fn answered(&mut self, count: usize) {
        let most = self.tasks.len() + self.answers.len();
        eventually(&format!("{count} of {most} are answered"), async || self.answers().len() >= count).await;
    }

    /// Waits for all answers.
    pub(crate) async fn finish(mut self) -> Vec<Answer> {
        while let Some(answer) = self.tasks.join_next().await {
            self.answers.push(answer.expect("no panic"));
        }
        self.answers
    }
}

/// How many answers have this status.
pub(crate) fn with_status(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

//! What the demo says, and when.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Error;
use super::fleet::{DECODE, Fleet, MODEL, QUEUE, SLOTS, Shared, THRESHOLD};
use super::load::{Answers, Curve, Load, Prober, Said};
use super::table;
use super::watch::{Turn, Watch};
use crate::keys::ModelKeys;

/// Requests per second while the fleet waits to be tried by hand.
pub(super) const RATE_AFTERWARDS: f64 = 1.0;
/// Between two looks at the gate.
const LOOK: Duration = Duration::from_millis(100);
/// Between two lines of the table.
const LINE: Duration = Duration::from_secs(1);
/// The table goes on for this long after the load has ended, until the gate has had time to open.
const AFTER: Duration = Duration::from_secs(4);
/// How long both frontends are asked until both answers fall between the same two changes.
const ASKING: Duration = Duration::from_secs(8);

/// Runs the load and tells what happens.
#[derive(Debug)]
pub(super) struct Story<'a> {
    fleet: &'a Fleet,
    load: &'a Load,
    watch: Watch,
    news: JoinSet<Option<String>>,
}

impl<'a> Story<'a> {
    pub(super) fn new(fleet: &'a Fleet, load: &'a Load) -> Self {
        Self { fleet, load, watch: Watch::default(), news: JoinSet::new() }
    }

    /// Follows the curve to its end.
    pub(super) async fn run(&mut self, curve: Curve, out: &mut (dyn Write + Send)) -> Result<(), Error> {
        writeln!(out, "{}", table::heading(self.fleet.workers.len(), self.fleet.frontends.len()))?;
        let start = Instant::now();
        let mut before = self.load.answers();
        let mut next = LINE;
        let mut ended = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = start.elapsed();
            let rate = curve.rate(now).unwrap_or_else(|| {
                ended.get_or_insert(now);
                0.0
            });
            self.load.set(rate);
            let answers = self.load.answers();
            if let Some(turn) = self.watch.see(now, answers.iter().map(Answers::refusals).sum()) {
                self.news.spawn(news(self.load.prober(), turn));
            }
            while let Some(news) = self.news.try_join_next() {
                if let Ok(Some(news)) = news {
                    writeln!(out, "{news}")?;
                }
            }
            if now >= next {
                next = Duration::from_secs(now.as_secs()) + LINE;
                match self.fleet.snapshot().await {
                    Ok(page) => writeln!(out, "{}", table::line(now.as_secs(), rate, &page, &before, &answers))?,
                    Err(error) => writeln!(out, "{:>3}s  no view of the state: {error}", now.as_secs())?,
                }
                out.flush()?;
                before = answers;
            }
            if ended.is_some_and(|ended| now > ended + AFTER) {
                return Ok(());
            }
        }
    }
}

/// Asks both frontends at once, until both have answered on the same state.
async fn news(prober: Prober, turn: Turn) -> Option<String> {
    let asking = async {
        loop {
            if let Some(said) = prober.ask().await.filter(|said| shows(turn, said)) {
                return tell(turn, &said);
            }
            tokio::time::sleep(LOOK / 4).await;
        }
    };
    tokio::time::timeout(ASKING, asking).await.ok()
}

/// Whether the answers show the turn: refusals on one revision, or no refusal.
fn shows(turn: Turn, said: &[Said]) -> bool {
    match turn {
        Turn::Shut => {
            let revision = said.first().and_then(|said| said.revision);
            revision.is_some() && said.iter().all(|said| said.status != 200 && said.revision == revision)
        }
        Turn::Open => said.iter().all(|said| said.status == 200),
    }
}

fn tell(turn: Turn, said: &[Said]) -> String {
    let word = if turn == Turn::Shut { "▼ the gate is shut:" } else { "▲ the gate is open again:" };
    let answers: Vec<String> = ('A'..)
        .zip(said)
        .map(|(name, said)| {
            let reason = said.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
            let revision = said.revision.map(|revision| format!(" at revision {revision}")).unwrap_or_default();
            format!("frontend {name} answers {}{reason}{revision}", said.status)
        })
        .collect();
    format!("      {word} {}", answers.join(", "))
}

/// What the fleet is.
pub(super) fn introduction(fleet: &Fleet) -> String {
    let mut text = String::from("tidegate demo: one gate, whichever frontend is asked.\n\n");
    let _ = match &fleet.shared {
        Shared::Private(server) => {
            let program = server.program().file_name().unwrap_or_default().to_string_lossy();
            writeln!(text, "  state       a private {program} at {}", server.url())
        }
        Shared::Given(url) => writeln!(text, "  state       {url}, namespace {}", fleet.store.namespace()),
        Shared::InProcess => writeln!(
            text,
            "  state       in this process. THIS IS NOT REDIS: there is no redis-server or valkey-server on PATH, so the\n\
             \x20             fleet runs on the pure model of the same rules. Install one of them to see the real thing,\n\
             \x20             for example: apt-get install redis-server"
        ),
    };
    for (name, address) in ('A'..).zip(&fleet.frontends) {
        let _ = writeln!(text, "  frontend {name}  http://{address}");
    }
    let places = SLOTS + QUEUE;
    for (worker, address) in &fleet.workers {
        let _ = writeln!(
            text,
            "  worker {worker}   http://{address}, {SLOTS} engine slots + {QUEUE} in the queue = {places} places, a mock \
             engine at {DECODE} tokens/s"
        );
    }
    let _ = writeln!(
        text,
        "\nThe model is `{MODEL}`. A worker is busy above {THRESHOLD} of its KV blocks; when all are busy or full, requests\n\
         get 529. The load rises to twice what the fleet can serve and falls again.\n"
    );
    text
}

/// What to try next.
pub(super) fn commands(fleet: &Fleet) -> String {
    let address = |index: usize| fleet.frontends.get(index).map(ToString::to_string).unwrap_or_default();
    let (a, b) = (address(0), address(1));
    let namespace = fleet.store.namespace();
    let json = "-H 'content-type: application/json'";
    let mut text = format!(
        "\nThe fleet stays up until Ctrl-C. Try:\n\n\
         \x20 curl -i http://{a}/v1/chat/completions {json} \\\n\
         \x20   -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n\
         \x20 curl -N http://{b}/v1/messages {json} \\\n\
         \x20   -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}],\"max_tokens\":40,\"stream\":true}}'\n\
         \x20 curl http://{b}/fleet\n\
         \x20 curl http://{a}/busy_threshold {json} \\\n\
         \x20   -d '{{\"model\":\"{MODEL}\",\"active_decode_blocks_threshold\":0.05,\"recompute\":true}}'   # set on A …\n\
         \x20 curl http://{b}/busy_threshold                                # … in force on B\n\
         \x20 curl http://{a}/metrics | grep tidegate_\n"
    );
    let redis = match &fleet.shared {
        Shared::Private(server) => Some(("-p ".to_owned() + &server.port().to_string(), server.url())),
        Shared::Given(url) => Some((format!("-u {url}"), url.to_string())),
        Shared::InProcess => None,
    };
    if let Some((option, url)) = redis {
        let keys = ModelKeys::new(namespace, &fleet.model);
        let [gate, inflight, config, transitions] =
            ["gate", "inflight", "config", "transitions"].map(|name| keys.named(name));
        let _ = write!(
            text,
            "\n\
             \x20 redis-cli {option} HGETALL '{gate}'             # worker → incarnation|cap|closed|url\n\
             \x20 redis-cli {option} HGETALL '{inflight}'         # the shared counters\n\
             \x20 redis-cli {option} HSET '{config}' active_decode_blocks_threshold 0.5\n\
             \x20 redis-cli {option} XREVRANGE '{transitions}' + - COUNT 10\n\
             \x20 tidegate status --redis-url {url} --namespace {namespace}\n\
             \x20 tidegate thresholds set active_decode_blocks_threshold 0.9 --model {MODEL} --redis-url {url} --namespace {namespace}\n"
        );
    } else {
        text.push_str("\nThis is not Redis, so there is nothing for redis-cli or `tidegate status` to look at.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, revision: u64) -> Said {
        Said { status, revision: Some(revision), reason: None }
    }

    #[test]
    fn a_shut_gate_is_told_only_when_both_answered_on_one_revision() {
        assert!(shows(Turn::Shut, &[said(529, 7), said(529, 7)]));
        assert!(!shows(Turn::Shut, &[said(529, 7), said(529, 8)]));
        assert!(!shows(Turn::Shut, &[said(529, 7), said(200, 7)]));
        assert!(shows(Turn::Open, &[said(200, 7), said(200, 8)]));
        let text = tell(Turn::Shut, &[said(529, 7), said(529, 7)]);
        assert!(text.contains("frontend A answers 529 at revision 7, frontend B answers 529 at revision 7"), "{text}");
    }
}

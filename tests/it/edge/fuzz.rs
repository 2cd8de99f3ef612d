//! Random bytes from clients and from workers: whatever comes, the frontend goes on, answers what it answers in valid
//! HTTP, and every place comes back. `TIDEGATE_FUZZ_SECONDS` (3) says for how long; the seed is printed on failure, and
//! `TIDEGATE_FUZZ_SEED` repeats it.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::rig::{BODY, CHAT, JSON, Rig, STREAM};
use crate::harness::{Act, Script, Stub, chat, eventually, get, request};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// Runs `case` with ever new generators until the time is over.
async fn for_some_time(mut case: impl AsyncFnMut(StdRng)) {
    let end = Instant::now() + Duration::from_secs(setting("TIDEGATE_FUZZ_SECONDS").unwrap_or(3));
    let first = setting("TIDEGATE_FUZZ_SEED").unwrap_or_else(rand::random);
    let mut cases = 0;
    while cases == 0 || Instant::now() < end {
        let seed = first.wrapping_add(cases);
        println!("TIDEGATE_FUZZ_SEED={seed}");
        case(StdRng::seed_from_u64(seed)).await;
        cases += 1;
    }
    println!("{cases} cases");
}

const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    "\0",
    "0",
    "-1",
    "99999999999999999999",
    "\u{ff}",
    "HTTP/1.0",
    "HTTP/1.1",
    "HTTP/2.0",
    "GET ",
    "POST ",
    "HEAD ",
    "OPTIONS ",
    "CONNECT ",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "/",
    "//",
    "?",
    "#",
    "%2F",
    "http://h/",
    "*",
    "Host: a\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: upgrade\r\nUpgrade: h2c\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Expect: 100-continue\r\n",
    "Content-Type: application/json\r\n",
    "Content-Encoding: gzip\r\n",
    "x-tidegate-worker: w1\r\n",
    "x-tidegate-refused: capacity\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "{",
    "}",
    "[",
    "\"",
    "\\u0000",
    "\\ud800",
    "\"model\":\"m\"",
    "\"stream\":true,",
    "data: x\n\n",
    "data: [DONE]\n\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 503 X\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Switching\r\n\r\n",
    "HTTP/1.1 204 No\r\n\r\n",
    "HTTP/1.1 304 No\r\n\r\n",
    "at capacity",
    "text/event-stream",
];

/// Something like `seed`, but not quite.
fn bend(rng: &mut StdRng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.random_range(0..6) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..6) {
            0 => bytes.truncate(at),
            1 => {
                let word = WORDS.choose(rng).expect("words").as_bytes();
                bytes.splice(at..at, word.iter().copied());
            }
            2 if at < bytes.len() => bytes[at] = rng.random(),
            3 => {
                let end = rng.random_range(at..=bytes.len()).min(at + 40);
                bytes.drain(at..end);
            }
            4 => {
                let end = rng.random_range(at..=bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let line = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |n| at + n + 1);
                let word = WORDS.choose(rng).expect("words").as_bytes();
                bytes.splice(line..line, word.iter().copied());
            }
        }
    }
    bytes
}

fn some_request(rng: &mut StdRng) -> Vec<u8> {
    let body = *[BODY, STREAM, b"{\"model\":\"nope\"}", b"{}", b""].choose(rng).expect("bodies");
    let paths =
        [CHAT, "/v1/messages", "/v1/completions?x=1", "/busy_threshold", "/v1/models", "/live", "/metrics", "/x"];
    let path = *paths.choose(rng).expect("paths");
    let method = *["POST", "POST", "POST", "GET", "HEAD", "PUT"].choose(rng).expect("methods");
    if rng.random_bool(0.3) {
        let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", body.len(), String::from_utf8_lossy(body));
        return format!("{method} {path} HTTP/1.1\r\nHost: t\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n{chunked}")
            .into_bytes();
    }
    request(method, path, JSON, body)
}

/// Every answer that came is HTTP, up to where the connection may have been cut.
fn is_http(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 ") || bytes.starts_with(b"HTTP/1.0 ")
}

#[tokio::test(flavor = "multi_thread")]
async fn fuzz_clients() {
    let stub = Stub::start().await;
    stub.script(Script::stream(vec![Script::event("[DONE]"), Script::last_chunk()]));
    let rig = Rig::with(&stub, 4, |_| {}).await;
    for_some_time(async |mut rng| {
        let mut clients = Vec::new();
        for _ in 0..rng.random_range(1..8) {
            let mut client = rig.connect().await;
            let mut bytes = Vec::new();
            for _ in 0..rng.random_range(1..4) {
                let request = some_request(&mut rng);
                bytes.extend(bend(&mut rng, request));
            }
            while !bytes.is_empty() {
                let part = rng.random_range(1..=bytes.len());
                let _ = client.send(bytes.drain(..part).collect::<Vec<_>>()).await;
            }
            clients.push(client);
        }
        for mut client in clients {
            match rng.random_range(0..4) {
                0 => client.reset(),
                1 => drop(client),
                _ => {
                    let _ = client.finish().await;
                    let rest = client.rest().await;
                    assert!(is_http(&rest), "{:?}", String::from_utf8_lossy(&rest));
                }
            }
        }
        let live = get(rig.address(), "/live").await;
        assert_eq!(live.status, 200);
    })
    .await;
    eventually("all places are free", async || rig.inflight("w1").await == 0 && stub.running() == 0).await;
    let strange: Vec<_> =
        stub.seen().iter().map(crate::harness::Seen::path).filter(|path| !path.starts_with("/v1/")).collect();
    assert!(strange.is_empty(), "{strange:?}");
    stub.script(Script::ok());
    assert_eq!(chat(rig.address(), "m").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fuzz_workers() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 100, |settings| {
        settings.engine_timeout = Some(Duration::from_millis(100));
        settings.stream_idle = Some(Duration::from_millis(100));
    })
    .await;
    for_some_time(async |mut rng| {
        let seeds = [Script::ok(), Script::stream(vec![Script::event("[DONE]"), Script::last_chunk()])];
        let seeds: Vec<Vec<u8>> = seeds
            .iter()
            .map(|script| {
                script
                    .0
                    .iter()
                    .flat_map(|act| if let Act::Send(bytes) = act { bytes.clone() } else { vec![] })
                    .collect()
            })
            .collect();
        for _ in 0..8 {
            let seed = seeds.choose(&mut rng).expect("seeds").clone();
            let mut bytes = bend(&mut rng, seed);
            let mut acts = Vec::new();
            while !bytes.is_empty() {
                let part = rng.random_range(1..=bytes.len());
                acts.push(Act::Send(bytes.drain(..part).collect()));
            }
            acts.extend(
                [vec![], vec![Act::Fin], vec![Act::Rst], vec![Act::Silence]].choose(&mut rng).expect("ends").clone(),
            );
            stub.clear();
            stub.next(Script(acts.clone()));
            let mut client = rig.send(if rng.random() { BODY } else { STREAM }).await;
            let sent: Vec<u8> =
                acts.iter().flat_map(|act| if let Act::Send(bytes) = act { bytes.clone() } else { vec![] }).collect();
            let Some(answer) = client.answer().await else {
                let headed = sent.windows(2).any(|w| w == b"\n\n") || sent.windows(3).any(|w| w == b"\n\r\n");
                assert!(headed, "no answer to {:?}", String::from_utf8_lossy(&sent));
                continue;
            };
            if answer.worker().is_none() && answer.status != 200 {
                assert!(answer.json()["error"]["reason"].is_string(), "{acts:?}");
            }
        }
        assert_eq!(get(rig.address(), "/live").await.status, 200);
    })
    .await;
    eventually("all places are free", async || rig.inflight("w1").await == 0).await;
    stub.clear();
    eventually("the worker serves again", async || chat(rig.address(), "m").await.status == 200).await;
}

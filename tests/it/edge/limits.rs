//! Limits: time, connections, and what slow or silent peers cost the others.

use std::time::Duration;

use tidegate::http::serve::{Control, Limits, Peer, listen, serve};
use warp::Filter;

use super::rig::{BODY, CHAT, JSON, Rig, STREAM};
use crate::harness::{Connection, Script, Stub, chat, eventually, get, request};

/// A server with limits short enough to wait for.
async fn short(limits: Limits) -> (std::net::SocketAddr, Control, tokio::task::JoinHandle<()>) {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let control = Control::default();
    let peer = warp::ext::optional::<Peer>().map(|peer: Option<Peer>| match peer {
        Some(peer) if peer.beyond_cap => "beyond".to_owned(),
        Some(peer) => peer.address.to_string(),
        None => "unknown".to_owned(),
    });
    let slow = warp::path("slow").then(|| async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        "slow"
    });
    let task = tokio::spawn(serve(listener, limits, control.clone(), warp::service(slow.or(peer))));
    (address, control, task)
}

fn limits() -> Limits {
    Limits { header: Duration::from_millis(300), idle: Duration::from_millis(900), ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_head_ends_with_408_and_an_idle_connection_later() {
    let (address, _control, task) = short(limits()).await;
    let mut half = Connection::open(address).await.unwrap();
    half.send("GET / HTTP/1.1\r\nHost").await.unwrap();
    let answer = half.answer().await.unwrap();
    assert_eq!((answer.status, answer.reason().as_str()), (408, "header_timeout"));
    assert!(half.rest().await.is_empty());

    let mut drip = Connection::open(address).await.unwrap();
    for byte in b"GET / HTTP/1.1\r\nx: 123456789012345678901234567890\r\n" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if drip.send([*byte]).await.is_err() {
            break;
        }
    }
    assert!(drip.answer().await.is_none_or(|answer| answer.status == 408), "each byte earns no new time");

    let mut idle = Connection::open(address).await.unwrap();
    idle.send(request("GET", "/", "", b"")).await.unwrap();
    assert_eq!(idle.answer().await.unwrap().status, 200);
    tokio::time::sleep(Duration::from_millis(500)).await;
    idle.send(request("GET", "/slow", "", b"")).await.unwrap();
    assert_eq!(idle.answer().await.unwrap().text(), "slow", "neither limit counts while a request is answered");
    assert!(idle.rest().await.is_empty(), "the silence ends without an answer");
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_cap_are_told_and_closed() {
    let (address, control, task) = short(Limits { connections: 2, tell_peer: true, ..Limits::default() }).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut client = Connection::open(address).await.unwrap();
        client.send(request("GET", "/", "", b"")).await.unwrap();
        let own = format!("127.0.0.1:{}", client.local_port());
        assert_eq!(client.answer().await.unwrap().text(), own);
        kept.push(client);
    }
    for _ in 0..100 {
        let mut client = Connection::open(address).await.unwrap();
        client.send(request("GET", "/", "", b"")).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("beyond", Some("close")));
        assert!(client.rest().await.is_empty());
    }
    drop(kept);
    eventually("there is room again", async || get(address, "/").await.text().starts_with("127.")).await;
    control.finish();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn f133_too_many_clients_hear_503_and_probes_go_on() {
    let stub = Stub::start().await;
    stub.script(Script::held_stream());
    let rig = Rig::with(&stub, 1000, |settings| settings.max_connections = 20).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut client = rig.send(STREAM).await;
        let head = client.head().await.unwrap();
        streams.push((client, head));
    }
    for _ in 0..80 {
        let answer = chat(rig.address(), "m").await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "too_many_connections"));
        assert!(answer.header("retry-after").is_some());
        assert_eq!(get(rig.address(), "/live").await.status, 200);
        assert_eq!(get(rig.address(), "/ready").await.status, 200);
    }
    stub.open();
    for (mut client, head) in streams {
        assert!(client.body(head).await.complete);
    }
    stub.script(Script::ok());
    eventually("all is normal", async || chat(rig.address(), "m").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_silent_peers_do_not_hinder_the_others() {
    let stub = Stub::start().await;
    stub.script(Script::held_stream());
    let rig = Rig::with(&stub, 1000, |_| {}).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(rig.send(STREAM).await);
    }
    eventually("all are open", async || stub.holding() == 200).await;
    let whole = request("POST", CHAT, JSON, BODY);
    let mut slow = Vec::new();
    for n in 0..60 {
        let mut client = rig.connect().await;
        client.send(&whole[..whole.len() * n / 61]).await.unwrap();
        slow.push(client);
    }
    stub.script(Script::ok());
    for _ in 0..20 {
        assert_eq!(chat(rig.address(), "m").await.status, 200);
    }
    assert_eq!(rig.inflight("w1").await, 200);
    drop((streams, slow));
    eventually("all places are free", async || rig.inflight("w1").await == 0 && stub.running() == 0).await;
}

/// Processor time that a process has used so far.
fn used(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap().split_whitespace().collect::<Vec<_>>();
    let ticks: u64 = after_name[11].parse::<u64>().unwrap() + after_name[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn f133_without_descriptors_it_waits_and_does_not_spin() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let fleet = crate::harness::Fleet::new();
    let frontend = fleet.frontend(&[]).await;
    let pid = frontend.pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let limit = |current| Rlimit { current: Some(current), maximum: Some(1024) };
    let own = Pid::from_raw(pid.cast_signed());
    prlimit(own, Resource::Nofile, limit(open + 10)).unwrap();
    let mut clients = Vec::new();
    for _ in 0..60 {
        let mut client = Connection::open(frontend.address()).await.unwrap();
        client.send(request("GET", "/live", "", b"")).await.unwrap();
        clients.push(client);
    }
    assert_eq!(clients[0].answer().await.unwrap().status, 200);
    let before = used(pid);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(used(pid) - before < Duration::from_millis(500), "it spins");
    prlimit(own, Resource::Nofile, limit(1024)).unwrap();
    for client in &mut clients[1..] {
        assert_eq!(client.answer().await.unwrap().status, 200, "those who waited are served");
    }
}

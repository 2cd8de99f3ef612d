//! The tools themselves do what the tests take for granted.

use std::time::Duration;

use super::{
    Act, Connection, Fault, FaultProxy, Redis, Script, Signal, Stub, chat, chat_body, eventually, get, holds_for, post,
    request,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_of_its_own() {
    let (one, two) = (Redis::any(), Redis::any());
    let key = format!("{}:key", one.namespace());
    one.command::<()>(&["SET", &key, "1"]).await;
    assert_ne!(one.namespace(), two.namespace());
    assert_eq!(one.command::<i64>(&["GET", &key]).await, 1);
    one.command::<()>(&["DEL", &key]).await;
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_can_be_stopped_resumed_and_frozen() {
        let redis = Redis::own(&[]);
        redis.command::<()>(&["SET", "key", "1"]).await;
        redis.server(|server| server.stop());
        assert!(redis.try_command::<()>(&["PING"]).await.is_err());
        redis.server(|server| server.resume()).unwrap();
        assert_eq!(redis.command::<Option<i64>>(&["GET", "key"]).await, None);

        let mut connection = redis.connect().await.unwrap();
        redis.signal(Signal::STOP);
        let ping = async {
            redis::cmd("PING").exec_async(&mut connection).await.unwrap();
        };
        tokio::pin!(ping);
        let frozen = tokio::time::timeout(Duration::from_millis(200), &mut ping).await.is_err();
        redis.signal(Signal::CONT);
        assert!(frozen, "a stopped server answered");
        ping.await;
    }

    #[test]
    #[ignore = "the parent that the next test kills"]
    fn parent() {
        let server = tidegate::redis_server::RedisServer::start(&[]).unwrap();
        println!("\nserver {}", server.address());
        std::thread::sleep(Duration::from_secs(60));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_goes_with_its_killed_parent() {
        use std::io::{BufRead, BufReader};
        let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "harness::checks::owned::parent", "--ignored", "--nocapture"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let address: std::net::SocketAddr = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("server ").map(|address| address.parse().unwrap()))
            .expect("the parent says where its server is");
        assert!(Connection::open(address).await.is_ok());
        parent.kill().unwrap();
        parent.wait().unwrap();
        eventually("the server is gone", async || Connection::open(address).await.is_err()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stub_holds_counts_and_records() {
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let address = stub.address();
    let two = [tokio::spawn(chat(address, "m")), tokio::spawn(chat(address, "m"))];
    eventually("both are held", async || stub.holding() == 2).await;
    stub.release(1);
    eventually("one is through", async || stub.running() == 1).await;
    stub.open();
    for answer in two {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!((stub.count(), stub.peak(), stub.abandoned()), (2, 2, 0));
    assert_eq!(stub.seen()[0].path(), "/v1/chat/completions");
    assert_eq!(stub.seen()[0].body, chat_body("m").to_string().as_bytes());

    stub.shut();
    let mut gone = Connection::open(address).await.unwrap();
    gone.send(request("POST", "/v1/completions", "", b"{}")).await.unwrap();
    eventually("it is held", async || stub.holding() == 1).await;
    drop(gone);
    eventually("the stub saw it leave", async || stub.abandoned() == 1 && stub.running() == 0).await;

    stub.close_port().await;
    assert!(Connection::open(address).await.is_err());
    stub.open_port().await;
    stub.next(Script(vec![Act::Rst]));
    let mut reset = Connection::open(address).await.unwrap();
    reset.send(request("POST", "/", "", b"{}")).await.unwrap();
    assert!(reset.answer().await.is_none());
    assert_eq!(get(address, "/health").await.status, 200);
    stub.health(500);
    assert_eq!(get(address, "/health").await.status, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stub_streams() {
    let stub = Stub::start().await;
    stub.next(Script::held_stream());
    let mut connection = Connection::open(stub.address()).await.unwrap();
    connection.send(request("POST", "/v1/chat/completions", "", b"{}")).await.unwrap();
    let head = connection.head().await.unwrap();
    assert_eq!(connection.chunk().await.unwrap(), b"data: {\"n\":0}\n\n");
    stub.release(1);
    let answer = connection.body(head).await;
    assert!(answer.complete);
    assert_eq!(answer.text(), "data: [DONE]\n\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_passes_loses_and_cuts() {
    let stub = Stub::start().await;
    let proxy = FaultProxy::start(stub.address()).await;
    let body = serde_json::json!({});
    assert_eq!(post(proxy.address(), "/", &body).await.status, 200);

    proxy.set(Fault::SwallowReplies);
    let mut connection = Connection::open(proxy.address()).await.unwrap();
    connection.send(request("POST", "/", "", b"{}")).await.unwrap();
    eventually("the reply is lost", async || proxy.lost() > 0).await;
    assert_eq!(stub.count(), 2);

    proxy.set(Fault::Reset);
    assert!(connection.answer().await.is_none());

    proxy.set(Fault::CutAfter(20));
    let mut connection = Connection::open(proxy.address()).await.unwrap();
    connection.send(request("POST", "/", "", b"{}")).await.unwrap();
    assert!(connection.rest().await.len() <= 20);

    proxy.set(Fault::Freeze);
    let mut connection = Connection::open(proxy.address()).await.unwrap();
    connection.send(request("POST", "/", "", b"{}")).await.unwrap();
    holds_for(Duration::from_millis(100), "nothing arrives", async || stub.count() == 3).await;
    proxy.set(Fault::Delay(Duration::ZERO, Duration::from_millis(2)));
    assert_eq!(connection.answer().await.unwrap().status, 200);
}

//! A fleet under random harm: kills, freezes, flushes, damage, outages, config writes and clients that leave, on three
//! frontends and four workers under load. At every quiet point the invariants of design section 10 hold (asked of
//! `tidegate doctor`), and the engines never saw more than N requests at a time.
//!
//! `TIDEGATE_SOAK_SECONDS` (default 60) bounds it, `TIDEGATE_SOAK_SEED` repeats one; the seed is printed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{
    Act, Connection, Fleet, Process, Redis, Script, Signal, Stub, chat_body, eventually_within, get, request,
};

const FRONTENDS: usize = 3;
const WORKERS: usize = 4;
const SLOTS: usize = 3;
/// How long a request runs.
const RUNS: Duration = Duration::from_millis(120);
/// Healing, reaping of what died (10 s + 4 s) and two heartbeats, twice: the machine is busy.
const SETTLED: Duration = Duration::from_secs(60);

/// Marsaglia's xorshift: the same seed, the same harm.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Where requests go, and what they came to.
struct Load {
    targets: Mutex<Vec<SocketAddr>>,
    on: AtomicBool,
    end: AtomicBool,
    served: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
    broken: AtomicU64,
    odd: Mutex<Vec<String>>,
}

impl Load {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            targets: Mutex::default(),
            on: AtomicBool::new(true),
            end: AtomicBool::new(false),
            served: AtomicU64::default(),
            refused: AtomicU64::default(),
            unavailable: AtomicU64::default(),
            broken: AtomicU64::default(),
            odd: Mutex::default(),
        })
    }

    /// One client: asks, waits for the answer or leaves before it.
    async fn client(self: Arc<Self>, seed: u64) {
        let mut dice = Dice(seed);
        let bytes = request(
            "POST",
            "/v1/chat/completions",
            "Content-Type: application/json\r\n",
            chat_body("m").to_string().as_bytes(),
        );
        while !self.end.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20 + dice.below(150))).await;
            let target = {
                let targets = self.targets.lock().unwrap();
                (!targets.is_empty()).then(|| dice.pick(&targets))
            };
            let Some(target) = target.filter(|_| self.on.load(Ordering::Relaxed)) else { continue };
            let leaves = dice.below(6) == 0;
            let patience = Duration::from_millis(if leaves { dice.below(200) } else { 30_000 });
            let one = async {
                let mut connection = Connection::open(target).await.ok()?;
                connection.send(&bytes).await.ok()?;
                connection.answer().await
            };
            match tokio::time::timeout(patience, one).await {
                Ok(Some(answer)) => {
                    let counter = match answer.status {
                        200 => &self.served,
                        529 => &self.refused,
                        // 502: the sidecar or engine went away under the request.
                        502 | 503 => &self.unavailable,
                        other => {
                            self.odd.lock().unwrap().push(format!("{other}: {:.200}", answer.text()));
                            &self.broken
                        }
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Ok(None) => drop(self.broken.fetch_add(1, Ordering::Relaxed)),
                Err(_) if leaves => {}
                Err(_) => self.odd.lock().unwrap().push("no answer in 30 s".into()),
            }
        }
    }
}

/// Looks at the engines all the time. A request that ends and the next one may overlap for as long as the engine needs to
/// see the end; one too many would be seen for as long as it runs.
async fn watch(engines: Arc<Vec<Stub>>, load: Arc<Load>) {
    let mut above = [0; WORKERS];
    while !load.end.load(Ordering::Relaxed) {
        tokio::time::sleep(RUNS / 12).await;
        for (i, engine) in engines.iter().enumerate() {
            above[i] = if engine.running() > SLOTS { above[i] + 1 } else { 0 };
            if above[i] == 6 {
                load.odd.lock().unwrap().push(format!("engine {i} ran {} at a time", engine.running()));
            }
        }
    }
}

struct Soak {
    fleet: Fleet,
    load: Arc<Load>,
    engines: Arc<Vec<Stub>>,
    workers: Vec<Option<Process>>,
    frontends: Vec<Option<Process>>,
}

impl Soak {
    async fn start() -> Self {
        let fleet = Fleet::on(Redis::own(&[]));
        let load = Load::new();
        let mut engines = Vec::new();
        for _ in 0..WORKERS {
            let engine = Stub::start().await;
            let mut script = Script::ok();
            script.0.insert(0, Act::Pause(RUNS));
            engine.script(script);
            engines.push(engine);
        }
        let engines = Arc::new(engines);
        let mut soak = Self { fleet, load, engines, workers: Vec::new(), frontends: Vec::new() };
        for i in 0..WORKERS {
            let worker = soak.new_worker(i).await;
            soak.workers.push(Some(worker));
        }
        for _ in 0..FRONTENDS {
            let frontend = soak.new_frontend().await;
            soak.frontends.push(Some(frontend));
        }
        soak.aim();
        soak
    }

    async fn new_worker(&self, i: usize) -> Process {
        let slots = SLOTS.to_string();
        let limits = ["--engine-request-limit", &slots, "--request-queue-limit", "2", "--drain-seconds", "5"];
        let url = self.fleet.redis.url();
        self.fleet.start_worker(url, "m", &format!("w{i}"), &self.engines[i].url(), &limits).listening().await
    }

    async fn new_frontend(&self) -> Process {
        self.fleet.start_frontend(self.fleet.redis.url(), &["--drain-seconds", "5"], &[]).listening().await
    }

    /// Points the clients at the frontends that run.
    fn aim(&self) {
        *self.load.targets.lock().unwrap() = self.frontends.iter().flatten().map(Process::address).collect();
    }

    async fn harm(&mut self, dice: &mut Dice) -> String {
        let redis = self.fleet.redis.clone();
        let pause = Duration::from_millis(dice.pick(&[300, 1_500, 4_000]));
        match dice.below(12) {
            0 => {
                let i = usize::try_from(dice.below(FRONTENDS as u64)).unwrap();
                let signal = dice.pick(&[Signal::KILL, Signal::TERM]);
                if let Some(mut old) = self.frontends[i].take() {
                    self.aim();
                    old.signal(signal);
                    old.exit_code().await;
                }
                self.frontends[i] = Some(self.new_frontend().await);
                self.aim();
                format!("frontend {i}: {signal:?}, a new one")
            }
            1 => {
                let i = usize::try_from(dice.below(WORKERS as u64)).unwrap();
                let signal = dice.pick(&[Signal::KILL, Signal::TERM]);
                if let Some(mut old) = self.workers[i].take() {
                    old.signal(signal);
                    old.exit_code().await;
                }
                self.workers[i] = Some(self.new_worker(i).await);
                format!("worker {i}: {signal:?}, a new one")
            }
            2 | 3 => {
                let all: Vec<u32> = self.frontends.iter().chain(&self.workers).flatten().map(Process::pid).collect();
                let pid = dice.pick(&all);
                let long = Duration::from_millis(dice.pick(&[500, 3_000, 12_000]));
                crate::harness::kill(pid, Signal::STOP);
                tokio::time::sleep(long).await;
                crate::harness::kill(pid, Signal::CONT);
                format!("process {pid} frozen for {long:?}")
            }
            4 => {
                redis.command::<()>(&["FLUSHALL"]).await;
                "FLUSHALL".into()
            }
            5 => {
                redis.command::<()>(&["SCRIPT", "FLUSH"]).await;
                "SCRIPT FLUSH".into()
            }
            6 | 7 => {
                let keys = self.fleet.keys();
                let name = dice.pick(&[
                    "stats",
                    "gate",
                    "inflight",
                    "workers",
                    "eligible",
                    "frontends",
                    "seq",
                    "busy",
                    "skips",
                    "due",
                    "route",
                ]);
                redis.command::<i64>(&["DEL", &keys.named(name)]).await;
                format!("DEL {name}")
            }
            8 => {
                let field = format!("w{}", dice.below(WORKERS as u64));
                redis.command::<i64>(&["HSET", &self.fleet.keys().named("inflight"), &field, "-5"]).await;
                format!("inflight of {field} = -5")
            }
            9 => {
                redis.signal(Signal::STOP);
                tokio::time::sleep(pause).await;
                redis.signal(Signal::CONT);
                format!("Redis frozen for {pause:?}")
            }
            10 => {
                redis.server(|server| server.stop());
                tokio::time::sleep(pause).await;
                redis.server(|server| server.resume()).unwrap();
                // The test's own connection is the old server's.
                while redis.try_command::<()>(&["PING"]).await.is_err() {}
                format!("Redis gone for {pause:?}, back empty")
            }
            _ => {
                let (field, value) = dice.pick(&[
                    ("max_inflight", "7"),
                    ("max_inflight", "x"),
                    ("router_mode", "kv"),
                    ("router_mode", "power-of-two"),
                    ("active_prefill_tokens_threshold", "3"),
                ]);
                self.fleet.set_config(field, value).await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                redis.command::<i64>(&["DEL", &self.fleet.keys().named("config")]).await;
                format!("{field} = {value}, and unset again")
            }
        }
    }

    /// No new requests; then all is as it should be.
    async fn quiet_point(&self, what: &str) {
        self.load.on.store(false, Ordering::Relaxed);
        let sound = async || {
            let counted = self.fleet.hash("inflight").await;
            let workers = (0..WORKERS).all(|i| counted.contains_key(&format!("w{i}")));
            let ready = async || {
                for frontend in self.frontends.iter().flatten() {
                    if get(frontend.address(), "/ready").await.status != 200 {
                        return false;
                    }
                }
                true
            };
            self.fleet.inflight_total().await == 0 && workers && counted.values().all(|n| n == "0") && ready().await
        };
        eventually_within(SETTLED, &format!("all is put right after: {what}"), sound).await;
        let namespace = self.fleet.redis.namespace().as_str();
        let doctor = ["doctor", "--redis-url", self.fleet.redis.url(), "--namespace", namespace];
        eventually_within(SETTLED, &format!("the doctor finds nothing after: {what}"), async || {
            self.fleet.process("doctor", &doctor, &[]).exit_code().await == 0
        })
        .await;
        let odd = self.load.odd.lock().unwrap();
        assert!(odd.is_empty(), "after {what}: {} odd answers, such as {:?}", odd.len(), odd.first());
        drop(odd);
        self.load.on.store(true, Ordering::Relaxed);
    }
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "a minute and more: make soak"]
    async fn soak() {
        let seconds = variable("TIDEGATE_SOAK_SECONDS", 60);
        let seed = variable("TIDEGATE_SOAK_SEED", rand::random::<u64>() >> 1);
        println!("TIDEGATE_SOAK_SEED={seed}");
        let mut dice = Dice(seed | 1);
        let mut soak = Soak::start().await;
        let clients: Vec<_> =
            (0..16).map(|i| tokio::spawn(Arc::clone(&soak.load).client(dice.below(u64::MAX) | 1 | i))).collect();
        let watcher = tokio::spawn(watch(Arc::clone(&soak.engines), Arc::clone(&soak.load)));
        let begin = Instant::now();
        let mut rounds = 0;
        while begin.elapsed() < Duration::from_secs(seconds) {
            let mut what = Vec::new();
            for _ in 0..=dice.below(2) {
                tokio::time::sleep(Duration::from_millis(dice.below(1_500))).await;
                let harm = soak.harm(&mut dice).await;
                println!("{:>5.1} s  {harm}", begin.elapsed().as_secs_f32());
                what.push(harm);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            soak.quiet_point(&what.join("; ")).await;
            rounds += 1;
        }
        soak.load.end.store(true, Ordering::Relaxed);
        for task in clients.into_iter().chain([watcher]) {
            task.await.unwrap();
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let load = &soak.load;
        println!(
            "{rounds} rounds: {} served, {} refused, {} unavailable, {} connections broken by kills",
            count(&load.served),
            count(&load.refused),
            count(&load.unavailable),
            count(&load.broken)
        );
        assert!(count(&load.served) > 0, "nothing was served");
    }
}

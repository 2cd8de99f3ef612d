//! The `tidegate` binary as a process.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) use rustix::process::Signal;
use tidegate::redis_server::Child;

use super::logs::Logs;

/// How long a process may take until it listens or ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a signal.
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// A running `tidegate`. Killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    address: Option<SocketAddr>,
    ended: Option<std::process::ExitStatus>,
}

impl Process {
    /// Starts `tidegate <arguments>`. The environment has no `TIDEGATE_*` and `DYN_*` variables but those given.
    pub(crate) fn start(logs: &Logs, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let name: String = name.chars().take(40).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let log = (0..)
            .map(|n| logs.file(&if n == 0 { name.clone() } else { format!("{name}.{n}") }))
            .find(|file| !file.exists())
            .expect("a free name");
        let file = std::fs::File::create(&log).expect("the log can be written");
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let mut variables: Vec<(OsString, Option<OsString>)> = std::env::vars_os()
            .filter(|(name, _)| {
                let name = name.to_string_lossy();
                name.starts_with("TIDEGATE_") || name.starts_with("DYN_")
            })
            .map(|(name, _)| (name, None))
            .collect();
        variables.push(("NO_COLOR".into(), Some("1".into())));
        if std::env::var_os("RUST_LOG").is_none() {
            variables.push(("RUST_LOG".into(), Some("info".into())));
        }
        variables.extend(environment.iter().map(|(name, value)| (name.into(), Some(value.into()))));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"));
        let child = Child::start(&program, &arguments, &variables, file).expect("tidegate can be started");
        Self { child, log, address: None, ended: None }
    }

    /// Waits until it listens; fails with its log if it ends instead.
    pub(crate) async fn listening(mut self) -> Self {
        let deadline = Instant::now() + PATIENCE;
        while self.address.is_none() {
            let ended = self.child.exited();
            self.address = address_after(&self.log(), "", "listening on http://");
            if self.address.is_none() {
                assert!(ended.is_none(), "tidegate ended with {ended:?}:\n{}", self.log());
                assert!(Instant::now() < deadline, "tidegate does not listen:\n{}", self.log());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        self
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("waited for with listening()")
    }

    /// Where its `--admin-listen` port is.
    pub(crate) async fn admin_address(&self) -> SocketAddr {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(address) = address_after(&self.log(), "admin ", "listening on http://") {
                return address;
            }
            assert!(Instant::now() < deadline, "no admin listener:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// All it has printed.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Sends a signal: `Signal::STOP`, `CONT`, `TERM`, `KILL`, …
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.exited();
        }
        self.ended.is_none()
    }

    /// Waits for its end and says its exit code (128 + the number of the signal that killed it).
    pub(crate) async fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.runs() {
            assert!(Instant::now() < deadline, "tidegate does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.ended.and_then(|status| status.code()).unwrap_or(-1)
    }
}

/// The address behind the first `<before><marker>`; with an empty `before`, one that no `admin ` precedes.
fn address_after(log: &str, before: &str, marker: &str) -> Option<SocketAddr> {
    log.match_indices(marker).find_map(|(at, _)| {
        let matches = if before.is_empty() { !log[..at].ends_with("admin ") } else { log[..at].ends_with(before) };
        let rest = &log[at + marker.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']')))?;
        matches.then(|| rest[..end].parse().ok()).flatten()
    })
}

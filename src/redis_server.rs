//! A private Redis (or Valkey) server of this process: for `demo` and for the tests. It listens on a loopback port,
//! keeps nothing, and is gone when this process is, however that ends.

mod child;

pub use child::Child;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Programs that will do, in order of preference.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// Ports to choose from: below the usual range of ephemeral ports, so that no outgoing connection holds one of them.
const PORTS: std::ops::Range<u16> = 14_000..32_000;
/// How long a server may take to answer.
const READY: Duration = Duration::from_secs(10);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither program is installed.
    #[error("no redis-server or valkey-server on PATH")]
    NotInstalled,
    /// The program or its folder could not be set up.
    #[error("cannot start {program}: {source}")]
    Io {
        /// What was to be started.
        program: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// It was started but does not serve.
    #[error("{program} does not serve; its log ends with: {log}")]
    Silent {
        /// What was started.
        program: String,
        /// The end of its log.
        log: String,
    },
}

/// A running server. Stopped on drop.
#[derive(Debug)]
pub struct RedisServer {
    program: PathBuf,
    options: Vec<String>,
    port: u16,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

/// The first of `redis-server` and `valkey-server` on PATH.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
}

impl RedisServer {
    /// Starts a server on a free loopback port, without persistence. `options` are added to its command line, such as
    /// `["--maxmemory", "20mb"]`. Blocks until it answers (some 20 ms).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: &[&str]) -> Result<Self, StartError> {
        let program = find().ok_or(StartError::NotInstalled)?;
        let dir = tempfile::Builder::new()
            .prefix("tidegate-redis-")
            .tempdir()
            .map_err(|source| StartError::Io { program: program.display().to_string(), source })?;
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { program, options, port: 0, dir, child: None };
        // Another process may take the port between the choice and the server's bind: then choose again.
        let mut last = None;
        for _ in 0..20 {
            server.port = rand::random_range(PORTS);
            match server.resume() {
                Ok(()) => return Ok(server),
                Err(error @ StartError::Silent { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or(StartError::NotInstalled))
    }

    /// Starts the server again, empty or from what its folder holds, on the port it had. Does nothing while it runs.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn resume(&mut self) -> Result<(), StartError> {
        if self.child.is_some() {
            return Ok(());
        }
        let io = |source| StartError::Io { program: self.program.display().to_string(), source };
        let log = self.dir.path().join("server.log");
        let file = std::fs::File::create(&log).map_err(io)?;
        let mut arguments: Vec<OsString> = ["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]
            .iter()
            .chain(&["--appendonly", "no", "--daemonize", "no", "--dir"])
            .map(OsString::from)
            .collect();
        arguments.push(self.dir.path().into());
        arguments.extend(self.options.iter().map(OsString::from));
        let mut child = Child::start(&self.program, &arguments, &[], file).map_err(io)?;
        let deadline = Instant::now() + READY;
        while !self.serves(child.pid()) {
            if child.exited().is_some() || Instant::now() > deadline {
                return Err(StartError::Silent { program: self.program.display().to_string(), log: tail(&log) });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
        Ok(())
    }

    /// Whether the process `pid` itself answers on the port, and not a stranger.
    fn serves(&self, pid: u32) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.address(), Duration::from_millis(200))?;
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            stream.write_all(b"INFO server\r\nQUIT\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.lines().any(|line| line.trim_end() == format!("process_id:{pid}")))
    }

    /// Stops the server at once (SIGKILL); its port stays chosen. See [`Self::resume`].
    pub fn stop(&mut self) {
        self.child = None;
    }

    /// Its process id; none while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// For `--redis-url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    /// Its folder: dumps and the log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Which program it is.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(5);
    lines.get(from..).unwrap_or_default().join(" / ")
}

//! A child process that does not outlive its parent, not even when the parent is killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Result};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Starts the program, says its process id, and kills it when standard input ends: the parent holds the other end of
/// that pipe, and the system closes it however the parent ends. (The death signal of Linux would not do: it comes
/// when the starting *thread* ends.)
const WATCH: &str = r#"
exec 3<&0
"$@" </dev/null >&2 3<&- &
child=$!
echo $child
(read -r _ <&3; kill -9 $child) >/dev/null 2>&1 &
watcher=$!
exec 3<&- >/dev/null
wait $child
status=$?
kill $watcher 2>/dev/null
exit $status
"#;

/// A running child. Killed (SIGKILL) on drop, and when this process ends in any way.
#[derive(Debug)]
pub struct Child {
    watcher: std::process::Child,
    pid: u32,
}

impl Child {
    /// Starts `program` in a process group of its own, so that Ctrl-C reaches only the parent. What it prints goes
    /// to `log`. `environment`: variables to set, or (none) to remove.
    ///
    /// # Errors
    /// There is no shell, no such program or no permission.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        environment: &[(OsString, Option<OsString>)],
        log: File,
    ) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(WATCH).arg("sh").arg(program).args(arguments);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut watcher = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = watcher.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid = line.trim().parse().map_err(|_| Error::new(ErrorKind::NotFound, "the shell started nothing"))?;
        Ok(Self { watcher, pid })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has: a code, or 128 + the signal's number.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.watcher.try_wait().ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Closes the pipe, whereupon the watcher kills the child, and waits for both.
        let _ = self.watcher.wait();
    }
}

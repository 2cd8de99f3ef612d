//! The folder of a test's logs: kept when the test fails.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder under `target/tmp` named after the running test. Removed on drop, unless the test is failing.
#[derive(Debug)]
pub(crate) struct Logs {
    folder: PathBuf,
}

impl Logs {
    pub(crate) fn new() -> Self {
        let test = std::thread::current().name().unwrap_or("test").replace("::", ".");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder of the logs can be made");
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
            return;
        }
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            println!("--- {} (last lines)", entry.path().display());
            for line in &lines[lines.len().saturating_sub(25)..] {
                println!("{line}");
            }
        }
    }
}

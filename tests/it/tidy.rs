//! Rules of this repository that the compiler does not check. Each rule is a function from a text to its offences, so
//! that it can also be shown a text that breaks it.

mod docs;
mod files;
mod layers;
mod places;
mod scripts;
mod words;

use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

impl File {
    fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        Self { path: path.to_owned(), text }
    }

    #[cfg(test)]
    fn made(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The lines of code with their numbers: no comments, and nothing from the unit tests at the end of the file.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let marker = if self.path.ends_with(".lua") { "--" } else { "//" };
        let all = self.text.lines().enumerate().map(|(i, line)| (i + 1, line));
        all.take_while(|(_, line)| line.trim() != "#[cfg(test)]")
            .filter(move |(_, line)| !line.trim_start().starts_with(marker))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file below `folders` (or the files themselves), in a fixed order, without what git or cargo make.
fn tree(folders: &[&str]) -> Vec<File> {
    fn walk(at: &Path, into: &mut Vec<PathBuf>) {
        if at.is_dir() {
            let entries = std::fs::read_dir(at).unwrap_or_else(|e| panic!("{}: {e}", at.display()));
            for entry in entries.flatten() {
                if !matches!(entry.file_name().to_str(), Some("target" | ".git" | "__pycache__") | None) {
                    walk(&entry.path(), into);
                }
            }
        } else {
            into.push(at.to_path_buf());
        }
    }
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let path = path.strip_prefix(root()).ok()?.to_str()?.to_owned();
        Some(File { path, text })
    };
    paths.iter().filter_map(read).collect()
}

/// The Rust sources of the product, without those of its unit tests.
fn sources() -> Vec<File> {
    let test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    tree(&["src"]).into_iter().filter(|f| f.path.ends_with(".rs") && !test(&f.path)).collect()
}

/// Fails with a line per offence.
#[track_caller]
fn none(offences: &[String]) {
    assert!(offences.is_empty(), "{} offence(s):\n{}", offences.len(), offences.join("\n"));
}

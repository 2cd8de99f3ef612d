//! Columns for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

/// Rows under a heading, two spaces in. Lines are never wrapped: terminals and `grep` do better with long ones.
pub(super) fn render(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading.to_vec());
    for row in rows {
        table.add_row(row);
    }
    table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn columns_line_up() {
        let text = render(&["A", "LONG"], [vec!["wide one".into(), "1".into()], vec!["é".into(), "2".into()]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let columns: Vec<Option<usize>> = ["LONG", "1", "2"]
            .iter()
            .zip(&lines)
            .map(|(word, line)| line.find(word).map(|at| line[..at].chars().count()))
            .collect();
        assert_eq!(columns, [Some(12), Some(12), Some(12)], "{text}");
    }
}

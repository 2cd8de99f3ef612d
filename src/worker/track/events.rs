//! Counts the data lines of an event stream as it passes, without taking it apart.

const DATA: &[u8] = b"data:";
const DONE: &[u8] = b"[DONE]";

/// Where in a line the last piece of the stream ended.
#[derive(Debug, Clone, Copy)]
enum At {
    /// This many bytes of `data:` have matched since the line began.
    Name(usize),
    /// Behind `data:`; this many bytes of `[DONE]` have matched.
    Value(usize),
    /// What comes up to the end of the line does not matter.
    Rest,
}

/// The count's state between two pieces of a stream.
#[derive(Debug)]
pub(super) struct DataLines {
    at: At,
}

impl Default for DataLines {
    fn default() -> Self {
        Self { at: At::Name(0) }
    }
}

impl DataLines {
    /// Data lines whose value begins in this piece; `[DONE]` is not one.
    pub(super) fn count(&mut self, bytes: &[u8]) -> u64 {
        let mut lines = 0;
        for &byte in bytes {
            self.at = match (self.at, byte) {
                (At::Value(matched), b'\n' | b'\r') => {
                    lines += u64::from(matched < DONE.len());
                    At::Name(0)
                }
                (_, b'\n' | b'\r') => At::Name(0),
                (At::Name(n), b) if DATA.get(n) == Some(&b) => {
                    if n + 1 == DATA.len() {
                        At::Value(0)
                    } else {
                        At::Name(n + 1)
                    }
                }
                (At::Value(0), b' ') => At::Value(0),
                (At::Value(n), b) if DONE.get(n) == Some(&b) => At::Value(n + 1),
                (At::Value(_), _) => {
                    lines += 1;
                    At::Rest
                }
                (At::Name(_) | At::Rest, _) => At::Rest,
            };
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::DataLines;

    const STREAM: &[u8] = concat!(
        ": comment\n\n",
        "data: {\"a\":1}\n\n",
        "event: x\r\ndata:{\"data: \":2}\r\n\r\n",
        "data: \n\n",
        "id: data:\n datax\ndata: [DONE?\n\n",
        "data: [DONE]\n\n"
    )
    .as_bytes();

    #[test]
    fn data_lines_count_wherever_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let mut lines = DataLines::default();
            let counted: u64 = STREAM.chunks(size).map(|piece| lines.count(piece)).sum();
            assert_eq!(counted, 4, "in pieces of {size}");
        }
    }
}

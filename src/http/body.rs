//! Reading the body of a request: with a bound for one, a bound for all, and a patience (design section 3.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;

use crate::core::refusal::Fault;

/// Longest silence in the middle of a body.
const IDLE: Duration = Duration::from_secs(30);
/// For a body however small.
const AT_LEAST: Duration = Duration::from_secs(60);
/// Bytes that earn a body one second more.
const PER_SECOND: usize = 256 * 1024;
/// Most that is set aside on the word of a `Content-Length`.
const TRUSTED: usize = 1 << 20;

/// The memory that all bodies of a process may take together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Buffers(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    used: AtomicUsize,
    most: usize,
}

impl Buffers {
    /// Room for `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Budget { used: AtomicUsize::new(0), most }))
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn hold(&self) -> Held {
        Held { budget: Arc::clone(&self.0), bytes: 0 }
    }
}

/// Room that is in use; given back on drop.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) > self.budget.most { Err(Fault::Buffers) } else { Ok(()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A whole body, and the room it takes.
#[derive(Debug)]
pub struct Whole {
    /// As it came, without the marks of a chunked transfer.
    pub bytes: Bytes,
    /// Keep it as long as the bytes.
    pub held: Held,
}

/// Reads a body to its end. `length` is what the request says of it, if it says so.
///
/// # Errors
/// `TooLarge` above `most` bytes, `Buffers` when all bodies together are too large, `BodyTimeout` when the client is too
/// slow, `Framing` when it breaks off.
pub async fn read<S, D, E>(stream: S, length: Option<u64>, most: usize, buffers: &Buffers) -> Result<Whole, Fault>
where
    S: Stream<Item = Result<D, E>>,
    D: Buf,
{
    if length.is_some_and(|length| length > most as u64) {
        return Err(Fault::TooLarge);
    }
    let mut stream = std::pin::pin!(stream);
    let mut held = buffers.hold();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut began = None;
    let mut size = 0;
    loop {
        // Most bodies have come with their head: they need no clock.
        let next = match stream.next().now_or_never() {
            Some(next) => next,
            None => {
                let now = Instant::now();
                let began = *began.get_or_insert(now);
                let total = AT_LEAST + Duration::from_secs((size / PER_SECOND) as u64);
                let due = (began + total).min(now + IDLE);
                tokio::time::timeout_at(due, stream.next()).await.map_err(|_| Fault::BodyTimeout)?
            }
        };
        let Some(part) = next else { break };
        let mut part = part.map_err(|_| Fault::Framing)?;
        let len = part.remaining();
        size += len;
        if size > most {
            return Err(Fault::TooLarge);
        }
        held.grow(len)?;
        let part = part.copy_to_bytes(len);
        if first.is_empty() && all.is_empty() {
            first = part;
            continue;
        }
        if all.is_empty() {
            let length = usize::try_from(length.unwrap_or(0)).unwrap_or(0);
            all.reserve(length.min(TRUSTED).max(size));
            all.extend_from_slice(&first);
            first = Bytes::new();
        }
        all.extend_from_slice(&part);
    }
    Ok(Whole { bytes: if all.is_empty() { first } else { all.freeze() }, held })
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn parts(parts: &[&'static str]) -> impl Stream<Item = Result<Bytes, ()>> + use<> {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn parts_become_one_body() {
        let buffers = Buffers::new(100);
        for (given, want) in [(&[][..], ""), (&["ab"], "ab"), (&["ab", "", "cd", "e"], "abcde"), (&["", "x"], "x")] {
            let whole = read(parts(given), None, 10, &buffers).await.expect("a body");
            assert_eq!(whole.bytes, want);
            assert_eq!(buffers.used(), want.len());
        }
        assert_eq!(buffers.used(), 0);
    }

    #[tokio::test]
    async fn f111_one_body_has_a_bound() {
        let buffers = Buffers::new(100);
        let exact = read(parts(&["abcde", "fghij"]), None, 10, &buffers).await;
        assert_eq!(exact.expect("fits").bytes, "abcdefghij");
        let more = read(parts(&["abcde", "fghijk"]), None, 10, &buffers).await;
        assert_eq!(more.err(), Some(Fault::TooLarge));
        let said = read(stream::pending::<Result<Bytes, ()>>(), Some(11), 10, &buffers).await;
        assert_eq!(said.err(), Some(Fault::TooLarge));
        assert_eq!(buffers.used(), 0);
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_bound() {
        let buffers = Buffers::new(10);
        let one = read(parts(&["abcdef"]), None, 10, &buffers).await.expect("fits");
        assert_eq!(read(parts(&["ghijk"]), None, 10, &buffers).await.err(), Some(Fault::Buffers));
        drop(one);
        assert_eq!(buffers.used(), 0);
        assert!(read(parts(&["ghijk"]), None, 10, &buffers).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_none() {
        let stream = stream::iter([Ok(Bytes::from_static(b"{")), Err(())]);
        assert_eq!(read(stream, None, 10, &Buffers::new(10)).await.err(), Some(Fault::Framing));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_ends_the_patience() {
        let began = Instant::now();
        let silent = read(stream::pending::<Result<Bytes, ()>>(), None, 10, &Buffers::new(10)).await;
        assert_eq!(silent.err(), Some(Fault::BodyTimeout));
        assert_eq!(Instant::now() - began, IDLE);

        let began = Instant::now();
        let drip = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            Some((Ok::<_, ()>(Bytes::from_static(b"x")), ()))
        });
        assert_eq!(read(drip, None, 100, &Buffers::new(100)).await.err(), Some(Fault::BodyTimeout));
        assert_eq!(Instant::now() - began, AT_LEAST);
    }
}

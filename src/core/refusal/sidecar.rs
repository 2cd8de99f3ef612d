//! Why a sidecar does not take a request that a frontend (or a client of its own) sends it (design section 3.5).

use super::Words;

/// The value of `x-tidegate-refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SidecarRefusal {
    /// N run and Q wait.
    Capacity,
    /// It waited in the queue for longer than `--queue-timeout-ms`.
    QueueTimeout,
    /// The engine does not answer.
    EngineDown,
    /// The request is meant for another life of this worker.
    Incarnation,
}

impl SidecarRefusal {
    /// All of them, for metrics that exist before the first refusal.
    pub const ALL: [Self; 4] = [Self::Capacity, Self::QueueTimeout, Self::EngineDown, Self::Incarnation];

    /// As it stands in the header, in error bodies and in metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::QueueTimeout => "queue_timeout",
            Self::EngineDown => "engine_down",
            Self::Incarnation => "incarnation",
        }
    }

    /// The other way.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.as_str() == text)
    }

    /// What the caller is told. The first message is the reference's.
    #[must_use]
    pub const fn words(self) -> Words {
        let (status, kind, message) = match self {
            Self::Capacity => (529, "Overloaded", "Server overloaded: worker at capacity"),
            Self::QueueTimeout => (529, "Overloaded", "Server overloaded: waited too long in the worker's queue"),
            Self::EngineDown => (503, "Service Unavailable", "Server unavailable: the engine does not answer"),
            Self::Incarnation => (503, "Service Unavailable", "Server unavailable: another incarnation of this worker"),
        };
        Words { status, kind, anthropic: "overloaded_error", message, reason: self.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_and_statuses() {
        for refusal in SidecarRefusal::ALL {
            assert_eq!(SidecarRefusal::parse(refusal.as_str()), Some(refusal));
            assert!(refusal.words().wants_retry_after());
        }
        assert_eq!(SidecarRefusal::parse("full"), None);
        assert_eq!(SidecarRefusal::Capacity.words().message, "Server overloaded: worker at capacity");
        assert_eq!(SidecarRefusal::ALL.map(|r| r.words().status), [529, 529, 503, 503]);
    }
}

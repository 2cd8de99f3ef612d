//! How many connections the process can have: descriptors are fewer than connections wanted more often than not.

/// Kept for Redis, logs, the listeners, and clients beyond the cap, which are told that they are too many.
const RESERVED: u64 = 192;

/// Raises the soft limit of open files to the hard one, and says how many proxied connections (two descriptors each)
/// fit below it: at most `wanted`, at least 1.
#[must_use]
pub fn connections(wanted: usize) -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Not being allowed to is no error: the present limit stays.
        let _ = setrlimit(Resource::Nofile, raised);
        within(wanted, getrlimit(Resource::Nofile).current)
    }
    #[cfg(not(unix))]
    wanted
}

fn within(wanted: usize, descriptors: Option<u64>) -> usize {
    let fit = descriptors.map_or(u64::MAX, |all| all.saturating_sub(RESERVED) / 2);
    wanted.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn f133_the_cap_leaves_room_for_the_other_descriptors() {
        assert_eq!(within(10_000, None), 10_000);
        assert_eq!(within(10_000, Some(1 << 20)), 10_000);
        assert_eq!(within(10_000, Some(1024)), 416);
        assert_eq!(within(10, Some(1024)), 10);
        assert_eq!(within(10_000, Some(64)), 1);
    }
}

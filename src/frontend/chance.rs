//! Ids and other things that must not repeat.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;

use crate::core::id::{FrontendId, LeaseId};
use crate::core::session::Chance;

/// Chance, as a session needs it.
#[derive(Debug, Clone)]
pub(super) struct Dice {
    host: String,
}

impl Dice {
    pub(super) fn new() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
        let clean: String = host.trim().chars().filter(|c| c.is_ascii_graphic() && *c != '|').take(200).collect();
        Self { host: if clean.is_empty() { "frontend".into() } else { clean } }
    }
}

impl Chance for Dice {
    fn frontend_id(&mut self) -> FrontendId {
        loop {
            // The host was cleaned, so the first try is a valid name.
            if let Ok(id) = FrontendId::parse(&format!("{}-{:08x}", self.host, rand::random::<u32>())) {
                return id;
            }
            self.host = "frontend".into();
        }
    }

    fn nonce(&mut self) -> String {
        format!("{:08x}", rand::random::<u32>())
    }

    fn seed(&mut self) -> u32 {
        rand::rng().random_range(1..=0x7fff_fffe)
    }

    fn jitter_ms(&mut self) -> u64 {
        rand::rng().random_range(0..=50)
    }
}

/// A lease id: a UUID v7, made here and never taken from a client.
pub(super) fn lease_id() -> LeaseId {
    loop {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        let uuid = uuid::Builder::from_unix_timestamp_millis(u64::try_from(ms).unwrap_or(0), &rand::random());
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        // Always valid: hex digits and hyphens.
        if let Ok(id) = LeaseId::parse(uuid.into_uuid().hyphenated().encode_lower(&mut text)) {
            return id;
        }
    }
}

//! `tidegate doctor`: checks the invariants of design section 10 on live state. What is read together is read as of one
//! moment, in pages; and since a fleet at work is always on its way from one state to the next, a violation counts when
//! it is seen twice.

mod read;

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::Error;
use crate::core::id::{FrontendId, ModelName, WorkerId};
use crate::core::invariants::Violation;
use crate::core::op::Repair;
use crate::store::Store;

/// What to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// This model only; none: all.
    pub model: Option<ModelName>,
    /// Print JSON.
    pub json: bool,
    /// Start a new epoch for a model whose state is broken.
    pub repair: bool,
    /// Between two looks: [`PAUSE`].
    pub pause: Duration,
    /// Between a repair and the look that follows it: [`HEALING`].
    pub healing: Duration,
}

/// A sweep comes every 2 s, a report at least as often, and the checks forgive a lag of 3 s.
pub const PAUSE: Duration = Duration::from_millis(4_500);

/// How long a new epoch may take to heal (design section 10, 6).
pub const HEALING: Duration = Duration::from_secs(9);

/// What was found of one model.
struct Finding {
    model: ModelName,
    /// What was looked at.
    seen: read::Seen,
    /// Seen twice.
    violations: Vec<Violation>,
    /// A new epoch was started, and this is how it ended.
    repaired: bool,
}

/// Checks, and prints what it finds. True if nothing is broken (any more).
///
/// # Errors
/// Redis cannot be read, or the model that was asked for is not known.
pub async fn run(settings: Settings, store: &Store, out: &mut (dyn Write + Send)) -> Result<bool, Error> {
    let models = super::chosen(store, settings.model.as_ref()).await?;
    let mut findings = Vec::new();
    for model in models {
        let mut finding = check(store, &model, settings.pause).await?;
        if settings.model.is_some() && finding.seen.keys == 0 {
            return Err(Error::Model(format!("model {model:?} is not known in namespace {}", store.namespace())));
        }
        if settings.repair && !finding.violations.is_empty() {
            repair(store, &model, &finding.violations).await?;
            tokio::time::sleep(settings.healing).await;
            finding = Finding { repaired: true, ..check(store, &model, settings.pause).await? };
        }
        findings.push(finding);
    }
    let sound = findings.iter().all(|finding| finding.violations.is_empty());
    let advice = store.warnings().await.unwrap_or_default();
    if settings.json {
        writeln!(out, "{:#}", as_value(&findings, &advice, sound))?;
    } else {
        print(&findings, &advice, out)?;
    }
    Ok(sound)
}

/// Looks, and looks again if something seems broken.
async fn check(store: &Store, model: &ModelName, pause: Duration) -> Result<Finding, Error> {
    let first = read::look(store, model).await?;
    let mut finding = Finding { model: model.clone(), seen: first.seen, violations: first.violations, repaired: false };
    if !finding.violations.is_empty() {
        tokio::time::sleep(pause).await;
        let second = read::look(store, model).await?;
        let twice = |now: &Violation| finding.violations.iter().any(|before| before.same(now));
        finding.violations = second.violations.into_iter().filter(twice).collect();
        finding.seen = second.seen;
    }
    Ok(finding)
}

/// Starts a new epoch. Keys that nobody owns get the end that their owner would have given them.
async fn repair(store: &Store, model: &ModelName, violations: &[Violation]) -> Result<(), Error> {
    let orphans = || violations.iter().filter(|violation| violation.invariant == 4).map(|violation| &violation.subject);
    let op = Repair {
        frontends: orphans()
            .filter_map(|key| FrontendId::parse(key.strip_prefix("leases:")?).ok())
            .take(read::PAGE)
            .collect(),
        workers: orphans()
            .filter_map(|key| WorkerId::parse(key.strip_prefix("worker:")?).ok())
            .take(read::PAGE)
            .collect(),
        nonce: format!("{:08x}", rand::random::<u32>()),
    };
    store.call(model, &op).await.map_err(Error::redis(store))?;
    tracing::info!("model {model}: a new epoch was started");
    Ok(())
}

fn print(findings: &[Finding], advice: &[String], out: &mut (dyn Write + Send)) -> Result<(), Error> {
    if findings.is_empty() {
        writeln!(out, "no model: no worker has registered yet")?;
    }
    for Finding { model, seen, violations, repaired } in findings {
        let epoch = if *repaired { ", after a new epoch" } else { "" };
        let verdict = if violations.is_empty() { "sound" } else { "BROKEN" };
        writeln!(
            out,
            "model {model}: {verdict}{epoch} (workers {}, frontends {}, leases {}, keys {})",
            seen.workers, seen.frontends, seen.leases, seen.keys
        )?;
        for violation in violations {
            writeln!(out, "  {violation}")?;
        }
        if let Some(left_out) = seen.left_out() {
            writeln!(out, "  not checked: {left_out}")?;
        }
    }
    for line in advice {
        writeln!(out, "advice: {line}")?;
    }
    if findings.iter().any(|finding| !finding.violations.is_empty() && !finding.repaired) {
        writeln!(out, "`tidegate doctor --repair` starts a new epoch: everybody says again what it holds")?;
    }
    Ok(())
}

fn as_value(findings: &[Finding], advice: &[String], sound: bool) -> Value {
    let models = findings.iter().map(|Finding { model, seen, violations, repaired }| {
        let violations = violations.iter().map(|violation| {
            json!({
                "invariant": violation.invariant,
                "rule": violation.rule,
                "subject": violation.subject,
                "message": violation.message,
            })
        });
        json!({
            "model": model.as_str(),
            "sound": violations.len() == 0,
            "repaired": repaired,
            "workers": seen.workers,
            "frontends": seen.frontends,
            "leases": seen.leases,
            "keys": seen.keys,
            "not_checked": seen.left_out(),
            "violations": violations.collect::<Vec<_>>(),
        })
    });
    json!({ "sound": sound, "models": models.collect::<Vec<_>>(), "advice": advice })
}

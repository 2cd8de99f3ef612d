//! The pages that a frontend answers by itself: probes, the list of models, its copy of the state, metrics.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use warp::Reply;
use warp::reply::Response;

use super::admission::{Mode, ModelView};
use super::answer::Addressee;
use super::edge::{Edge, Stage};
use crate::core::refusal::Fault;
use crate::http::dialect::json_answer;
use crate::metrics;

/// `/live`: the process answers, also while it drains (design section 5).
pub(super) fn live(to: &Addressee) -> Response {
    json_page(to, 200, &json!({ "status": "live", "message": "Service is live" }))
}

/// `/ready`: has seen Redis, is not leaving, can decide. Workers are not needed.
pub(super) fn ready(edge: &Edge, to: &Addressee) -> Response {
    let health = edge.admissions.health();
    let status = match edge.stage() {
        Stage::Pausing | Stage::Draining => "draining",
        Stage::Open if !health.seen => "store_not_seen",
        Stage::Open if health.closed => "store_unavailable",
        Stage::Open => "ready",
    };
    let code = if status == "ready" { 200 } else { 503 };
    json_page(to, code, &json!({ "status": status, "degraded": health.degraded }))
}

/// `/health`, as in the reference: healthy unless shutting down, whatever the load.
pub(super) fn health(edge: &Edge, to: &Addressee) -> Response {
    if edge.stage() != Stage::Open {
        let body = json!({ "status": "shutting_down", "message": "Service is shutting down" });
        return json_page(to, 503, &body);
    }
    if !edge.admissions.health().seen {
        let body = json!({
            "status": "not_ready", "message": "The store has not answered yet", "initial_discovery_complete": false,
        });
        return json_page(to, 503, &body);
    }
    let mut endpoints = Vec::new();
    let mut instances = Vec::new();
    for view in edge.admissions.models() {
        for row in view.snapshot.workers.values().filter(|row| !row.closed.contains('x')) {
            endpoints.push(row.url.clone());
            instances.push(json!({
                "model": view.model.as_str(), "worker_id": row.worker.as_str(), "url": row.url,
                "incarnation": row.incarnation.as_str(), "busy": row.closed.contains('b'),
                "draining": row.closed.contains('d'),
            }));
        }
    }
    endpoints.sort_unstable();
    endpoints.dedup();
    let body = json!({
        "status": "healthy", "message": "Service is healthy", "endpoints": endpoints, "instances": instances,
    });
    json_page(to, 200, &body)
}

/// `/v1/models`: those with a live worker.
pub(super) fn models(edge: &Edge, to: &Addressee) -> Response {
    let data: Vec<Value> = edge.admissions.models().iter().filter(|view| is_served(view)).map(card).collect();
    json_page(to, 200, &json!({ "object": "list", "data": data }))
}

/// `/v1/models/<id>`; the id may contain slashes, and be percent-encoded.
pub(super) fn model(edge: &Edge, to: &Addressee, path: &str) -> Response {
    let name = percent_encoding::percent_decode_str(path).decode_utf8().ok();
    let name = name.and_then(|name| crate::core::id::ModelName::parse(&name).ok());
    match name.and_then(|name| edge.admissions.model(&name)).filter(is_served) {
        Some(view) => json_page(to, 200, &card(&view)),
        None => to.fault(Fault::Model, None),
    }
}

fn is_served(view: &ModelView) -> bool {
    view.snapshot.has_live_worker()
}

fn card(view: &ModelView) -> Value {
    let born: u64 = view.snapshot.stat("born").and_then(|ms| ms.parse().ok()).unwrap_or(0);
    json!({ "id": view.model.as_str(), "object": "model", "created": born / 1000, "owned_by": "tidegate" })
}

/// `/fleet`: this frontend's copy of the state.
pub(super) fn fleet(edge: &Edge, to: &Addressee) -> Response {
    let pairs = |pairs: &[(String, String)]| -> Value {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let one = |view: &ModelView| {
        let ModelView { model, live, snapshot } = view;
        let workers: Vec<Value> = snapshot
            .workers
            .values()
            .map(|row| {
                json!({
                    "worker_id": row.worker.as_str(), "incarnation": row.incarnation.as_str(), "url": row.url,
                    "cap": row.cap, "inflight": row.inflight, "closed": row.closed,
                })
            })
            .collect();
        json!({
            "model": model.as_str(),
            "mode": mode(live.mode),
            "frontend": live.frontend.as_ref().map(|id| id.as_str()),
            "epoch": live.epoch,
            "revision": live.revision,
            "leases": live.held,
            "read_ms": snapshot.now_ms,
            "stats": pairs(&snapshot.stats),
            "config": pairs(&snapshot.applied),
            "frontends": snapshot.frontends.iter().map(|(id, until)| json!({ "id": id.as_str(), "alive_until_ms": until }))
                .collect::<Vec<_>>(),
            "workers": workers,
        })
    };
    let health = edge.admissions.health();
    let body = json!({
        "process": edge.admissions.process(),
        "degraded": health.degraded,
        "closed": health.closed,
        "models": edge.admissions.models().iter().map(one).collect::<Vec<_>>(),
    });
    json_page(to, 200, &body)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Starting => "starting",
        Mode::Deciding => "deciding",
        Mode::Static => "static",
        Mode::Closed => "closed",
    }
}

/// `/metrics`, for Prometheus.
pub(super) async fn metrics_page(edge: &Edge, to: &Addressee) -> Response {
    edge.figures.refresh(&edge.admissions).await;
    edge.metrics.observe(edge.control.active(), edge.buffers.used());
    match metrics::page(edge.metrics.registry()) {
        Ok(page) => {
            let mut answer = page.into_response();
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            to.signed(answer)
        }
        Err(error) => to.fault(Fault::Store, Some(&error.to_string())),
    }
}

fn json_page(to: &Addressee, status: u16, body: &Value) -> Response {
    to.signed(json_answer(status, body.to_string()))
}

//! The engine's HTTP routes: what an OpenAI or Anthropic client and a sidecar need.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use warp::http::{Method, StatusCode};
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::answer::{Answer, Form};
use super::driver::{Driver, Generation};
use super::model::{Event, Finish, Job};
use super::page;
use super::prompt::Prompt;
use crate::core::id::ModelName;

/// Longest request body, in bytes.
const MAX_BODY: usize = 64 << 20;
/// Length of an embedding.
const DIMENSIONS: usize = 8;
/// Chooses the rank, as vLLM has it.
const RANK: &str = "x-data-parallel-rank";

/// What was asked for cannot be done.
#[derive(Debug)]
struct Refused(StatusCode, String);

/// All routes. Routing is done by hand: an engine answers every path and method in one way.
pub(super) fn routes(
    model: ModelName,
    driver: Driver,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let parts = warp::method().and(warp::path::full()).and(warp::header::headers_cloned()).and(warp::body::stream());
    let known = parts.then(move |method: Method, path: FullPath, headers: HeaderMap, body| {
        let (model, driver) = (model.clone(), driver.clone());
        async move {
            let answer = match collect(body).await {
                Ok(body) => answer(&model, &driver, &method, path.as_str(), &headers, &body).await,
                Err(refused) => Err(refused),
            };
            answer.unwrap_or_else(|refused| error(&refused))
        }
    });
    let unreadable = |_| async { Ok(error(&Refused(StatusCode::BAD_REQUEST, "unreadable request".into()))) };
    known.recover(unreadable).unify()
}

/// Reads a body, up to [`MAX_BODY`].
async fn collect(body: impl Stream<Item = Result<impl Buf, warp::Error>>) -> Result<Bytes, Refused> {
    let mut all = BytesMut::new();
    let mut body = std::pin::pin!(body);
    while let Some(part) = body.next().await {
        let mut part = part.map_err(|why| Refused(StatusCode::BAD_REQUEST, why.to_string()))?;
        if all.len() + part.remaining() > MAX_BODY {
            return Err(Refused(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {MAX_BODY} bytes")));
        }
        all.extend_from_slice(&part.copy_to_bytes(part.remaining()));
    }
    Ok(all.freeze())
}

async fn answer(
    model: &ModelName,
    driver: &Driver,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refused> {
    let form = match path {
        "/health" | "/ping" => return Ok(StatusCode::OK.into_response()),
        "/version" => return Ok(json_answer(&json!({"version": env!("CARGO_PKG_VERSION")}))),
        "/metrics" => return Ok(metrics(model, driver)),
        "/v1/models" => return Ok(models(model, driver)),
        "/v1/chat/completions" => Some(Form::Chat),
        "/v1/completions" => Some(Form::Completion),
        "/v1/responses" => Some(Form::Responses),
        "/v1/messages" => Some(Form::Messages),
        "/v1/embeddings" | "/v1/messages/count_tokens" => None,
        _ => return Err(Refused(StatusCode::NOT_FOUND, format!("no such path: {path}"))),
    };
    if method != Method::POST {
        return Err(Refused(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here")));
    }
    let prompt = Prompt::read(body).map_err(|why| Refused(StatusCode::BAD_REQUEST, why))?;
    if prompt.model != model.as_str() {
        return Err(Refused(StatusCode::NOT_FOUND, format!("the model {} does not exist", prompt.model)));
    }
    let Some(form) = form else {
        if path == "/v1/messages/count_tokens" {
            return Ok(json_answer(&json!({"input_tokens": prompt.prompt_tokens})));
        }
        return embeddings(driver, headers, &prompt).await;
    };
    let finish = if prompt.limited { Finish::Length } else { Finish::Stop };
    let mut generation = submit(driver, headers, &prompt, prompt.output_tokens, finish)?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let mut answer = Answer::new(form, &prompt, created);
    if prompt.stream {
        return Ok(event_stream(answer, generation));
    }
    loop {
        match generation.next().await {
            Some(Event::Token(_)) => answer.count(),
            Some(Event::Finished(_, finish)) => return Ok(json_answer(&answer.whole(finish))),
            None => return Err(Refused(StatusCode::INTERNAL_SERVER_ERROR, "the engine has stopped".into())),
        }
    }
}

fn submit(
    driver: &Driver,
    headers: &HeaderMap,
    prompt: &Prompt,
    output_tokens: u64,
    finish: Finish,
) -> Result<Generation, Refused> {
    let bad = |why: String| Refused(StatusCode::BAD_REQUEST, why);
    let rank = match headers.get(RANK) {
        None => None,
        Some(value) => {
            let rank = value.to_str().ok().and_then(|text| text.parse().ok());
            Some(rank.ok_or_else(|| bad(format!("{RANK}: must be a number, is {value:?}")))?)
        }
    };
    let job = Job { prompt_tokens: prompt.prompt_tokens, output_tokens, finish, rank };
    driver.submit(&job).map_err(|why| bad(why.to_string()))
}

/// The head is sent at once; the first event when the prompt is prefilled, as vLLM does it.
fn event_stream(answer: Answer, generation: Generation) -> Response {
    let parts = stream::unfold(Some((answer, generation, true)), |state| async {
        let (mut answer, mut generation, first) = state?;
        let mut text = if first { answer.begin() } else { String::new() };
        match generation.next().await? {
            Event::Token(_) => {
                text += &answer.token();
                Some((Ok::<_, Infallible>(Bytes::from(text)), Some((answer, generation, false))))
            }
            Event::Finished(_, finish) => Some((Ok(Bytes::from(text + &answer.end(finish))), None)),
        }
    });
    let mut response = warp::reply::stream(parts).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Prefills the inputs and makes vectors up, the same ones for the same number of inputs.
async fn embeddings(driver: &Driver, headers: &HeaderMap, prompt: &Prompt) -> Result<Response, Refused> {
    let mut generation = submit(driver, headers, prompt, 1, Finish::Stop)?;
    while generation.next().await.is_some() {}
    let vector = |index: usize| -> Vec<f64> {
        (0..DIMENSIONS).map(|place| if place == index % DIMENSIONS { 1.0 } else { 0.0 }).collect()
    };
    let data: Vec<Value> = (0..prompt.inputs)
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vector(index)}))
        .collect();
    let usage = json!({"prompt_tokens": prompt.prompt_tokens, "total_tokens": prompt.prompt_tokens});
    Ok(json_answer(&json!({"object": "list", "data": data, "model": prompt.model, "usage": usage})))
}

fn models(model: &ModelName, driver: &Driver) -> Response {
    let (limits, _) = driver.figures();
    json_answer(&json!({"object": "list", "data": [{
        "id": model.as_str(), "object": "model", "created": 0, "owned_by": "tidegate",
        "max_model_len": limits.max_model_len(),
    }]}))
}

fn metrics(model: &ModelName, driver: &Driver) -> Response {
    let (limits, ranks) = driver.figures();
    let page = page::render(model.as_str(), &limits, &ranks);
    warp::reply::with_header(page, CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8").into_response()
}

fn json_answer(value: &Value) -> Response {
    warp::reply::json(value).into_response()
}

fn error(refused: &Refused) -> Response {
    let Refused(status, message) = refused;
    let code = status.as_u16();
    let kind = if status.is_client_error() { "BadRequestError" } else { "InternalServerError" };
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    warp::reply::with_status(warp::reply::json(&body), *status).into_response()
}

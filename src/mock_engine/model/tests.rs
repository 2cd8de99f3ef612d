//! The engine model in virtual time.

use super::*;

fn limits() -> Limits {
    Limits {
        kv_total_blocks: 100,
        kv_block_size: 16,
        max_num_seqs: 4,
        max_num_batched_tokens: 1_000,
        prefill_tokens_per_s: 1_000.0,
        decode_tokens_per_s: 10.0,
        data_parallel_size: 1,
    }
}

fn job(prompt: u64, output: u64) -> Job {
    Job { prompt_tokens: prompt, output_tokens: output, finish: Finish::Length, rank: None }
}

/// Runs to the end and says when each event happened, in milliseconds.
fn run(engine: &mut Engine) -> Vec<(u64, Event)> {
    let mut all = Vec::new();
    while let Some(at) = engine.next_at() {
        let mut events = Vec::new();
        engine.advance(at, &mut events);
        all.extend(events.into_iter().map(|event| (at / 1_000, event)));
    }
    all
}

fn ends(events: &[(u64, Event)]) -> Vec<(u64, RequestId)> {
    let finished = events.iter().filter(|(_, event)| matches!(event, Event::Finished(..)));
    finished.map(|(at, event)| (*at, id(event))).collect()
}

fn id(event: &Event) -> RequestId {
    match event {
        Event::Token(id) | Event::Finished(id, _) => *id,
    }
}

#[test]
fn one_request_takes_prefill_plus_steps() {
    let mut engine = Engine::new(limits());
    let id = engine.submit(0, &job(500, 3)).unwrap();
    let events = run(&mut engine);
    let finished = Event::Finished(id, Finish::Length);
    assert_eq!(events, [(500, Event::Token(id)), (600, Event::Token(id)), (700, Event::Token(id)), (700, finished)]);
    let figures = engine.figures().next().unwrap();
    assert_eq!((figures.prompt_tokens, figures.generated_tokens, figures.finished), (500, 3, [0, 1]));
    assert_eq!((figures.running, figures.used_blocks, figures.prefill_tokens), (0, 0, 0));
}

#[test]
fn blocks_are_those_of_prompt_and_output() {
    let mut engine = Engine::new(limits());
    engine.submit(0, &job(31, 20)).unwrap();
    let used = |engine: &Engine| engine.figures().next().unwrap().used_blocks;
    assert_eq!(used(&engine), 2, "31 tokens and the next one");
    engine.advance(31_000, &mut Vec::new());
    assert_eq!(used(&engine), 3, "32 tokens and the next one");
    run(&mut engine);
    assert_eq!(used(&engine), 0);
}

#[test]
fn prefill_waits_for_its_batch() {
    let mut engine = Engine::new(limits());
    let one = engine.submit(0, &job(600, 1)).unwrap();
    let two = engine.submit(0, &job(600, 1)).unwrap();
    let three = engine.submit(0, &job(600, 1)).unwrap();
    assert_eq!(engine.figures().next().unwrap().prefill_tokens, 1_800);
    // The first batch was made before the second request came; the next one holds 1,000 of the other 1,200 tokens.
    assert_eq!(ends(&run(&mut engine)), [(600, one), (1_600, two), (1_800, three)]);
}

#[test]
fn no_more_than_max_num_seqs_run_and_the_rest_waits_in_order() {
    let mut engine = Engine::new(limits());
    let ids: Vec<RequestId> = (0..6).map(|_| engine.submit(0, &job(1, 2)).unwrap()).collect();
    let figures = engine.figures().next().unwrap();
    assert_eq!((figures.running, figures.waiting), (4, 2));
    let order: Vec<RequestId> = ends(&run(&mut engine)).into_iter().map(|(_, id)| id).collect();
    assert_eq!(order, ids);
}

#[test]
fn a_request_waits_for_blocks_and_the_last_one_is_preempted() {
    let mut engine = Engine::new(Limits { kv_total_blocks: 4, ..limits() });
    let first = engine.submit(0, &job(16, 30)).unwrap();
    let second = engine.submit(0, &job(16, 30)).unwrap();
    let third = engine.submit(0, &job(16, 5)).unwrap();
    let figures = engine.figures().next().unwrap();
    assert_eq!((figures.running, figures.waiting, figures.used_blocks), (2, 1, 4));
    let events = run(&mut engine);
    // All three get all their tokens, the preempted one too, and none twice.
    for (id, output) in [(first, 30), (second, 30), (third, 5)] {
        assert_eq!(events.iter().filter(|(_, event)| *event == Event::Token(id)).count(), output, "{id:?}");
    }
    assert_eq!(ends(&events)[0].1, first, "the oldest is never pushed back");
    let figures = engine.figures().next().unwrap();
    assert!(figures.preemptions > 0);
    assert_eq!(figures.used_blocks, 0);
}

#[test]
fn a_cancelled_request_is_gone_from_everywhere() {
    let mut engine = Engine::new(Limits { max_num_seqs: 1, ..limits() });
    let running = engine.submit(0, &job(100, 100)).unwrap();
    let waiting = engine.submit(0, &job(100, 1)).unwrap();
    let next = engine.submit(0, &job(100, 1)).unwrap();
    engine.cancel(10_000, waiting);
    engine.cancel(10_000, running);
    assert_eq!(engine.figures().next().unwrap().running, 1);
    assert_eq!(ends(&run(&mut engine)).into_iter().map(|(_, id)| id).collect::<Vec<_>>(), [next]);
    engine.cancel(0, running);
    assert_eq!(engine.figures().next().unwrap().used_blocks, 0);
    assert_eq!(engine.next_at(), None);
}

#[test]
fn ranks_share_the_work_and_can_be_named() {
    let mut engine = Engine::new(Limits { data_parallel_size: 2, ..limits() });
    for _ in 0..4 {
        engine.submit(0, &job(10, 10)).unwrap();
    }
    engine.submit(0, &Job { rank: Some(1), ..job(10, 10) }).unwrap();
    assert_eq!(engine.figures().map(|f| f.running).collect::<Vec<_>>(), [2, 3]);
    let error = engine.submit(0, &Job { rank: Some(2), ..job(1, 1) });
    assert_eq!(error, Err(Unfit::NoRank { rank: 2, size: 2 }));
}

#[test]
fn what_can_never_fit_is_refused() {
    let mut engine = Engine::new(limits());
    assert_eq!(engine.submit(0, &job(1_600, 1)), Err(Unfit::TooLong { tokens: 1_601, max: 1_600 }));
    engine.submit(0, &job(1_599, 1)).unwrap();
    assert_eq!(run(&mut engine).len(), 2);
}

#[test]
fn many_random_requests_leave_nothing_behind() {
    let mut engine = Engine::new(Limits { kv_total_blocks: 12, data_parallel_size: 3, ..limits() });
    let (mut now, mut seed) = (0, 7_u64);
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut known = Vec::new();
    for _ in 0..2_000 {
        let job = Job { rank: None, ..job(1 + random(90), 1 + random(90)) };
        known.push(engine.submit(now, &job).unwrap());
        now += random(400_000);
        engine.advance(now, &mut Vec::new());
        if random(3) == 0 {
            let index = random(known.len() as u64) as usize;
            engine.cancel(now, known[index]);
        }
        for figures in engine.figures() {
            assert!(figures.used_blocks <= figures.total_blocks && figures.running <= 4, "{figures:?}");
        }
    }
    run(&mut engine);
    assert!(engine.figures().all(|f| (f.running, f.waiting, f.used_blocks, f.prefill_tokens) == (0, 0, 0, 0)));
}

--- The keys of one model, always KEYS[1..17] in this order; a script's further keys come after them.
local K = {
  config = KEYS[1], applied = KEYS[2], history = KEYS[3], workers = KEYS[4], gate = KEYS[5], busy = KEYS[6],
  eligible = KEYS[7], inflight = KEYS[8], reserved = KEYS[9], route = KEYS[10], skips = KEYS[11], due = KEYS[12],
  frontends = KEYS[13], seq = KEYS[14], load = KEYS[15], transitions = KEYS[16], stats = KEYS[17],
}
--- What the includes share: M, functions and what they keep during a call; S, P:stats as numbers.
--- Functions of `@rarely` includes are defined when one of them is first called: a call pays for each it defines.
local M, S = {}, {}

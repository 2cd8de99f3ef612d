//! A frontend's side of the recovery protocol: what to send next, what an answer means.

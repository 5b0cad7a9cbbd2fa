// SPDX-License-Identifier: Apache-2.0
//! The check of a run, as the replaying kernel makes it (`lab_check` in `lab/kernel/driver/recorder.c`): Jenkins' lookup3, which Linux calls `jhash2`.

use slowpath_recording::fields::SocketFields;

const INITIAL: u32 = 0xdead_beef;

fn rounds([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    [a, b, c]
}

fn last([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

fn jhash2(words: &[u32], seed: u32) -> u32 {
    let start = INITIAL
        .wrapping_add((words.len() as u32) << 2)
        .wrapping_add(seed);
    let mut state = [start; 3];
    let mut rest = words;
    while rest.len() > 3 {
        let (head, tail) = rest.split_at(3);
        for (word, part) in state.iter_mut().zip(head) {
            *word = word.wrapping_add(*part);
        }
        state = rounds(state);
        rest = tail;
    }
    if rest.is_empty() {
        return state[2];
    }
    for (word, part) in state.iter_mut().zip(rest) {
        *word = word.wrapping_add(*part);
    }
    last(state)
}

/// Goes on from the decisions before (`lab_mix`).
pub fn mix(before: u32, decision: u32, count: u32, value: u32) -> u32 {
    // jhash_3words: a length of 12 bytes.
    let start = before.wrapping_add(INITIAL).wrapping_add(3 << 2);
    last([decision, count, value].map(|word| word.wrapping_add(start)))
}

/// Goes on from the check before; `words` are time, ticks, kind and flags, value, result, decisions and what more there is.
pub fn check(words: [u32; 8], fields: &SocketFields, before: u32) -> u32 {
    let check = jhash2(&fields.0, jhash2(&words, before));
    // 0: there is none.
    if check == 0 { 1 } else { check }
}

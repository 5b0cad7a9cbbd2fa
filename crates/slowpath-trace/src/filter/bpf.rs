// SPDX-License-Identifier: Apache-2.0
//! Classic BPF, as far as filters here need it (linux/filter.h, McCanne and Jacobson 1993).

/// Load from the packet into A: a word, half a word, a byte; at k, or at X + k.
pub(super) const LD_W_ABS: u16 = 0x20;
pub(super) const LD_H_ABS: u16 = 0x28;
pub(super) const LD_B_ABS: u16 = 0x30;
pub(super) const LD_W_IND: u16 = 0x40;
pub(super) const LD_H_IND: u16 = 0x48;
pub(super) const LD_B_IND: u16 = 0x50;
/// The packet's length on the wire.
pub(super) const LD_LEN: u16 = 0x80;
/// X becomes the length of the IPv4 header at k.
pub(super) const LDX_MSH: u16 = 0xb1;
pub(super) const AND_K: u16 = 0x54;
pub(super) const JA: u16 = 0x05;
pub(super) const JEQ_K: u16 = 0x15;
pub(super) const JGT_K: u16 = 0x25;
pub(super) const JGE_K: u16 = 0x35;
pub(super) const JSET_K: u16 = 0x45;
pub(super) const RET_K: u16 = 0x06;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip if so.
    pub jt: u8,
    /// Instructions to skip if not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A program. Jumps go forward only and end at a return, as the kernel demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(pub(super) Vec<Instruction>);

impl Program {
    /// The instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// What the program returns for a packet: 0 if it is not wanted. A load beyond what was
    /// captured ends it with 0.
    #[must_use]
    pub fn run(&self, data: &[u8], wire_length: u32) -> u32 {
        self.step_through(data, wire_length).unwrap_or(0)
    }

    fn step_through(&self, data: &[u8], wire_length: u32) -> Option<u32> {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        loop {
            let Instruction { code, jt, jf, k } = *self.0.get(at)?;
            at += 1;
            let mut jump = |taken: bool| at += usize::from(if taken { jt } else { jf });
            match code {
                LD_W_ABS => a = word(data, k)?,
                LD_H_ABS => a = half(data, k)?,
                LD_B_ABS => a = byte(data, k)?,
                LD_W_IND => a = word(data, x.checked_add(k)?)?,
                LD_H_IND => a = half(data, x.checked_add(k)?)?,
                LD_B_IND => a = byte(data, x.checked_add(k)?)?,
                LD_LEN => a = wire_length,
                LDX_MSH => x = (byte(data, k)? & 15) * 4,
                AND_K => a &= k,
                JA => at += k as usize,
                JEQ_K => jump(a == k),
                JGT_K => jump(a > k),
                JGE_K => jump(a >= k),
                JSET_K => jump(a & k != 0),
                RET_K => return Some(k),
                _ => return None,
            }
        }
    }
}

fn word(data: &[u8], at: u32) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at as usize..)?.first_chunk()?))
}

fn half(data: &[u8], at: u32) -> Option<u32> {
    let bytes = *data.get(at as usize..)?.first_chunk()?;
    Some(u16::from_be_bytes(bytes).into())
}

fn byte(data: &[u8], at: u32) -> Option<u32> {
    data.get(at as usize).map(|byte| u32::from(*byte))
}

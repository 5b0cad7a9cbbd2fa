// SPDX-License-Identifier: Apache-2.0
//! Opening an intake: the offsets, then what was flushed after them.

use super::writer::Writer;
use super::{IntakeOptions, Shared};
use crate::FleetError;
use crate::checkpoint::Checkpoint;
use crate::decide::Position;
use crate::frame::{Frame, Frames, Taken};
use crate::layout;
use crate::offsets::Offsets;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes up an intake: a writer to a new file.
pub(super) fn writer(
    dir: &Path,
    options: IntakeOptions,
    shared: Arc<Shared>,
) -> Result<Writer, FleetError> {
    let intake = layout::intake_dir(dir);
    layout::make_dir(&intake)?;
    let (mut checkpoint, mut offsets, as_of) = Checkpoint::load(&intake)?;
    let numbers = layout::intakes(dir)?;
    let last = numbers.last().copied().unwrap_or(0).max(as_of);
    let mut bytes = 0;
    for number in numbers {
        let path = layout::intake_path(dir, number);
        if number > as_of {
            replay(&path, number == last, &mut offsets)?;
        }
        bytes += fs::metadata(&path).map_or(0, |m| m.len());
    }
    if last > as_of {
        checkpoint.save(&mut offsets, last)?;
    }
    shared.unpublished.store(bytes, Ordering::Relaxed);
    Writer::new((dir, last + 1), options, (checkpoint, offsets), shared)
}

/// Moves the offsets by the frames of a file. What stands behind the last intact frame of the last
/// file was not answered, and is cut off.
fn replay(path: &Path, is_last: bool, offsets: &mut Offsets) -> Result<(), FleetError> {
    let file = layout::options().read(true).write(true).open(path);
    let file = file.map_err(FleetError::io("open", path))?;
    let mut frames = Frames::new(&file);
    loop {
        let frame = frames.next_frame();
        let Some((_, payload)) = frame.map_err(FleetError::io("read", path))? else {
            break;
        };
        if let Some(Frame::Batch(taken)) = Frame::read(payload) {
            apply(&taken, offsets);
        }
    }
    if is_last && frames.tail > 0 {
        cut(&file, frames.end()).map_err(FleetError::io("cut off the end of", path))?;
    }
    Ok(())
}

/// A frame that is damaged leaves a hole, which publication states; what follows it was taken.
fn apply(taken: &Taken, offsets: &mut Offsets) {
    offsets.host(&taken.host).runs.judge(taken.run);
    let then = Position {
        offset: taken.end(),
        crc: taken.crc,
        ended: taken.last || offsets.position(&taken.host, &taken.segment).ended,
    };
    offsets.take(&taken.host, &taken.segment, then);
}

fn cut(file: &File, length: u64) -> std::io::Result<()> {
    file.set_len(length)?;
    file.sync_all()
}

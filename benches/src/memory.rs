//! The allocators and the copy that a program has anyway, beside our buffers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use clika_cli::bench::memory::{COPIED, allocations, bandwidth};
use clika_cli::bench::{Figures, Sizes};
use mimalloc::MiMalloc;

/// Who takes part besides us.
pub(crate) const PEERS: [&str; 3] = ["malloc", "mimalloc", "memcpy"];

/// Runs one measure; `None` for a peer that does not take part.
pub(crate) fn run(peer: &str, name: &str, sizes: &Sizes) -> Option<Figures> {
    Some(match (peer, name) {
        ("clika", name) => return clika_cli::bench::memory::run(name, sizes),
        ("malloc", "alloc") => allocations(sizes, &|size| use_block(&System, size)),
        ("mimalloc", "alloc") => allocations(sizes, &|size| use_block(&MiMalloc, size)),
        ("memcpy", "copy") => memcpy(sizes),
        _ => return None,
    })
}

#[expect(unsafe_code, reason = "allocators are called by hand here")]
fn use_block(allocator: &dyn GlobalAlloc, size: usize) {
    let layout = Layout::from_size_align(size, 64).expect("64 is a power of two");
    // SAFETY: the size is not zero; the block is written to within its size, and freed once.
    unsafe {
        let block = black_box(allocator.alloc(layout));
        block.write(1);
        allocator.dealloc(block, layout);
    }
}

fn memcpy(sizes: &Sizes) -> Figures {
    let (source, mut target) = (vec![1_u8; COPIED], vec![0_u8; COPIED]);
    bandwidth(sizes, &mut || {
        target.copy_from_slice(black_box(&source));
        black_box(&target);
    })
}

//! Buffers: order without asking, memory, failed data.

mod basics;

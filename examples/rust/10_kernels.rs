//! A kernel is one operation over a range, which all workers that are idle share.

use clika_runtime::{Buffer, Device, Error, Stream};

const COUNT: usize = 1_000_000;
const GRAIN: usize = 16_384;

fn main() -> Result<(), Error> {
    let cpu = Device::cpu();
    let stream = Stream::create(cpu)?;
    let x = Buffer::new(cpu, COUNT * size_of::<f32>())?;
    let y = Buffer::new(cpu, COUNT * size_of::<f32>())?;

    // What a kernel writes comes in parts, one for each range; what it reads, as a whole.
    stream.parallel_for(COUNT, GRAIN, x.write::<f32>(), |range, x| {
        for (x, index) in x.iter_mut().zip(range) {
            *x = index as f32;
        }
    })?;
    stream.parallel_for(
        COUNT,
        GRAIN,
        (x.read::<f32>(), y.write::<f32>()),
        |range, (x, y)| {
            for (y, x) in y.iter_mut().zip(&x[range]) {
                *y = (x * 2.0 + 1.0).sqrt();
            }
        },
    )?;

    let y = y.to_vec::<f32>()?;
    assert_eq!((y[0], y[4]), (1.0, 3.0));
    println!("{COUNT} roots, the last is {}", y[COUNT - 1]);
    Ok(())
}

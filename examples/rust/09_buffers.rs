//! Streams share memory through buffers, which show the order: no event is needed.

use clika_runtime::{Buffer, Device, Error, Stream};

fn main() -> Result<(), Error> {
    let cpu = Device::cpu();
    let (writer, reader) = (Stream::named(cpu, "writer")?, Stream::named(cpu, "reader")?);

    // A buffer has a size, and memory from when its first writer runs.
    let numbers = Buffer::new(cpu, 4 * size_of::<u32>())?;
    let sums = Buffer::new(cpu, size_of::<u32>())?;

    // An operation says what it reads and writes, and gets slices. Those that conflict run in the
    // order of these lines, on whatever streams.
    writer.run(numbers.write::<u32>(), |numbers| {
        numbers.copy_from_slice(&[1, 2, 3, 4])
    })?;
    reader.run(
        (numbers.read::<u32>(), sums.write::<u32>()),
        |(numbers, sums)| sums[0] = numbers.iter().sum(),
    )?;
    writer.fill(&numbers, 0..8, 0_u32)?;
    assert_eq!(sums.to_vec::<u32>()?, [10]);
    assert_eq!(numbers.to_vec::<u32>()?, [0, 0, 3, 4]);

    // Bytes go in and out, and from buffer to buffer.
    writer.copy_in(&7_u32.to_ne_bytes(), &numbers, 0)?;
    writer.copy(&numbers, 0, &sums, 0, 4)?;
    assert_eq!(reader.copy_out::<u32>(&sums, 0..4)?.wait()?, [7]);

    // A view lets the host look at the contents in place. While it lives, nothing may write to them.
    let view = numbers.view::<u32>()?;
    assert_eq!(view[..], [7, 0, 3, 4]);
    let Err(refused) = writer.fill(&numbers, 0..16, 0_u8) else {
        panic!("a buffer was written to while it was being viewed");
    };
    assert!(refused.is_invalid_argument());
    println!("refused: {refused}");
    drop(view);

    // What a failed operation should have written has failed too, until all of it is overwritten.
    writer.run(numbers.update::<u32>(), |_| Err("no numbers today"))?;
    let Err(failed) = numbers.to_vec::<u32>() else {
        panic!("the failure was lost");
    };
    println!("failed: {failed}");
    assert!(failed.to_string().contains("no numbers today"));
    assert!(writer.synchronize().is_err());
    writer.fill(&numbers, 0..16, 1_u32)?;
    assert_eq!(numbers.to_vec::<u32>()?, [1, 1, 1, 1]);

    println!("{:?}", cpu.memory_stats()?);
    Ok(())
}

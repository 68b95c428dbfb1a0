## The NOP benchmark of document 003 on nimuring. The contract is in ../README.md.
##
## Its loop is the same as in the library's own benchmark: fill the queue, submit, copy the completions. In the mode `userdata`,
## each operation has its own memory from its start to its completion.
import nimuring
import std/[monotimes, os, strformat, strscans, times]

type Event = object
  a, b: int

const stride = 4096 # operations between two readings of the clock

proc turn(q: var Queue, entries: int, userdata: bool) =
  for i in 0 ..< entries:
    q.nop(if userdata: create(Event) else: cast[ptr Event](i))
  q.submit()
  let cqes = q.copyCqes(entries.uint)
  doAssert cqes.len == entries, "completions are missing"
  if userdata:
    for cqe in cqes:
      dealloc(cast[ptr Event](cqe.userData))

proc burst(q: var Queue, entries: int, window: int64, userdata: bool): (int, int64, int64) =
  var operations = 0
  let (cpu, start) = (cpuTime(), getMonoTime().ticks)
  var elapsed = 0'i64
  while elapsed < window:
    for _ in 1 .. max(1, stride div entries):
      q.turn(entries, userdata)
      operations += entries
    elapsed = getMonoTime().ticks - start
  (operations, elapsed, int64((cpuTime() - cpu) * 1e9))

proc answer(entries: int, window: int64, userdata: bool) =
  var q = newQueue(entries, {})
  discard q.burst(entries, window div 5, userdata)
  let (operations, ns, cpu) = q.burst(entries, window, userdata)
  echo &"{{\"operations\":{operations},\"ns\":{ns},\"cpu_ns\":{max(cpu, 1)}}}"
  stdout.flushFile()

proc main() =
  let userdata = paramCount() == 1 and paramStr(1) == "userdata"
  if paramCount() > 0 and not userdata:
    quit "usage: nimuring-nop [userdata], then lines of ENTRIES SECONDS", 2
  for line in stdin.lines:
    var entries: int
    var seconds: float
    if not line.scanf("$i $f$.", entries, seconds) or entries notin 1 .. 32768 or seconds <= 0 or seconds > 3600:
      quit "nimuring-nop: '" & line & "' is not ENTRIES SECONDS: 1 to 32768 entries, up to 3600 seconds", 2
    answer(entries, int64(seconds * 1e9), userdata)

main()

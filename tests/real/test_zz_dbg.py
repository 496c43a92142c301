import shutil, signal, time
from supervise.host import signals
def test_dbg(server):
    server.start().wait_ready()
    t=time.monotonic()
    signals.send(server.engine_core(), signal.SIGKILL)
    print("rc", server.launched.wait(60), time.monotonic()-t)
    print(server.supervise.outcome()); print(server.launched.stderr)
    shutil.copy(server.supervise.attempt()/"server.log", "/tmp/ec_killed.log")

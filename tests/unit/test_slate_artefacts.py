"""Debug dumps as tables: what is removed, what is only told, and globs that are refused."""

from dataclasses import replace

import pytest

from supervise.model.litter import FileId, FileType, Litter
from supervise.model.process import HostId
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import available_rules, expand, load_rules
from supervise.slate.artefacts import Match, Unfinished, check, judge, refusal
from supervise.slate.request import SlateRequest

GLOB = "/tmp/*_debug_*.pt"
ENV = {"HOME": "/home/ada", "USER": "ada"}
RULES = LeftoverRules(artefacts=("{tmp}/dumper/**", "{tmp}/stack_*", "${DUMPS}/**"))
REQUEST = SlateRequest("x", None, (), rules=RULES, env=ENV, artefacts=(GLOB,))
FILE = Match("/tmp/a_debug_1.pt", FileId(1, 2), FileType.REGULAR, 12 * 2**20, 1000, 10800.0, glob=GLOB, asked=True)
REST = Unfinished(f"{GLOB}\0", FileId(-1, -1), FileType.OTHER, 0, -1, 0.0, glob=GLOB, asked=True)


def snapshot(*files: Match) -> Snapshot:
    return Snapshot(HostId("boot", 1), 1000, frozenset(), {}, litter=Litter(artefacts=files))


def judged(*files: Match, request: SlateRequest = REQUEST):
    return list(judge(snapshot(*files), request))


def test_what_the_user_names_is_removed():
    (finding,) = judged(FILE)
    assert finding.action == Remove("/tmp/a_debug_1.pt", FileId(1, 2), FileType.REGULAR, 1000)
    assert finding.evidence == (f"matches {GLOB}", "12 MiB", "3 h old")
    assert (finding.kind, finding.ownership, finding.blocking) == ("artefact", Ownership.OURS, False)


@pytest.mark.parametrize(
    ("changed", "ownership", "why"),
    [
        ({"users": (4711,)}, Ownership.LIVE, "open in pid 4711"),
        ({"users": (1, 2, 3, 4, 5)}, Ownership.LIVE, "open in pid 1, 2, 3 and 2 more"),
        ({"users": (4711,), "links": 2}, Ownership.LIVE, "open in pid 4711"),
        ({"users_known": False}, Ownership.UNKNOWN, "its users cannot be read"),
        ({"links": 2}, Ownership.UNKNOWN, "it has 2 names"),
        ({"uid": 1001}, Ownership.FOREIGN, "uid 1001"),
        ({"uid": 0}, Ownership.FOREIGN, "uid 0"),
        ({"type": FileType.DIRECTORY}, Ownership.UNKNOWN, "a directory"),
        ({"type": FileType.OTHER}, Ownership.UNKNOWN, "no regular file"),
        ({"type": FileType.SOCKET}, Ownership.UNKNOWN, "no regular file"),
    ],
)
def test_a_decoy_is_told_and_left(changed, ownership, why):
    (finding,) = judged(replace(FILE, **changed))
    assert (finding.action, finding.blocking, finding.ownership) == (None, False, ownership)
    assert finding.evidence[-1] == why


def test_directories_on_the_way_are_not_told():
    assert judged(replace(FILE, type=FileType.DIRECTORY, glob="/tmp/dumper/**")) == []


def test_an_unfinished_search_is_never_clean():
    removal, obstacle = judged(FILE, REST)
    assert removal.action is not None
    assert (obstacle.action, obstacle.blocking, obstacle.ownership) == (None, True, Ownership.UNKNOWN)
    assert check(snapshot(REST), REQUEST) == (f"{GLOB} not searched whole",)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ((), (f"no file matches {GLOB}",)),
        ((replace(FILE, type=FileType.DIRECTORY),), (f"no file matches {GLOB}",)),
        ((replace(FILE, glob="/tmp/stack_*", asked=False),), (f"no file matches {GLOB}",)),
        ((replace(FILE, users=(1,)),), (f"1 open file matches {GLOB}",)),
        ((replace(FILE, users=(1,)),) * 2, (f"2 open files match {GLOB}",)),
        ((replace(FILE, uid=0),), (f"1 file matches {GLOB}",)),
        ((replace(FILE, users=(1,)), FILE), (f"1 open file matches {GLOB}", f"1 file matches {GLOB}")),
        ((replace(FILE, users=(1,)), REST), (f"{GLOB} not searched whole", f"1 open file matches {GLOB}")),
    ],
)
def test_what_is_verified(files, told):
    assert check(snapshot(*files), REQUEST) == told


def test_each_glob_has_its_sentence():
    request = replace(REQUEST, artefacts=(GLOB, "/tmp/b_*.pt", GLOB, "/*"))
    assert check(snapshot(replace(FILE, users=(7,))), request) == (
        f"1 open file matches {GLOB}",
        "no file matches /tmp/b_*.pt",
        "/* not searched whole",
    )


def dump(name: str, **more) -> Match:
    more.setdefault("glob", "/tmp/stack_*")
    return replace(FILE, path=f"/tmp/{name}", asked=False, **more)


def test_what_engines_dump_is_one_remark_for_each_glob():
    found = judged(dump("stack_1"), dump("stack_2", age_s=60.0), dump("dumper/x", glob="/tmp/dumper/**"))
    assert [(f.subject, f.action, f.blocking) for f in found] == [
        ("/tmp/stack_*", None, False),
        ("/tmp/dumper/**", None, False),
    ]
    assert found[0].evidence == ("2 files dumped earlier", "24 MiB", "the newest 60 s old")
    assert found[0].remedy == "--artefacts '/tmp/stack_*' removes them"
    assert found[1].remedy == "--artefacts '/tmp/dumper/**' removes it"


def test_the_dumps_of_others_and_directories_are_no_remark():
    assert judged(dump("stack_1", uid=1001), dump("stack_2", type=FileType.DIRECTORY)) == []


def test_an_unfinished_list_says_so_and_refuses_nothing():
    rest = replace(REST, glob="/tmp/stack_*", asked=False)
    (finding,) = judged(dump("stack_1"), rest)
    assert finding.evidence[0] == "at least 1 file dumped earlier"
    assert not finding.blocking
    assert judged(rest) == []


def test_no_remedy_is_given_that_would_be_refused():
    request = replace(REQUEST, env={**ENV, "DUMPS": "/home/ada"})
    (finding,) = judged(dump("stack_1", glob="/home/ada/**"), request=request)
    assert finding.remedy == ""


REFUSED = [
    "/",
    "/*",
    "/**",
    "/tmp",
    "/x.pt",
    "/tmp/*",
    "/tmp/**",
    "/tmp/*/*",
    "/tmp/?*",
    "/tmp/*.*",
    "/tmp/[ab]*",
    "/tmp/[!x]",
    "/scratch/*",
    "/dev/shm/*",
    "/var/tmp/**",
    "/*/*.pt",
    "/*/*/x.pt",
    "/**/x.pt",
    "/ho*/ada/x.pt",
    "/etc/*",
    "/etc/**/x.pt",
    "/data/**/*.pt",
    "/home/*",
    "/home/ada",
    "/home/ada/*",
    "/home/ada/**",
    "/home/ada/**/*.pt",
    "/home/*/**/*.pt",
    "/home/bob/**/*.pt",
    "/home/ada/models/*",
    "/home/ada/models/**",
    "tmp/x_*.pt",
    "~/x_*.pt",
    "/tmp/../etc/x",
    "/tmp//x.pt",
    "/tmp/./x.pt",
    "",
    "/tmp/hicache",
    "/tmp/hicache/*.pt",
    "/tmp/hicache/a/b/*.pt",
    "/tmp/hicache/**",
    "/tmp/hic*",
    "/tmp/hic*/x.pt",
    "/tmp/h?cache",
    "/scratch/hicache/x",
    "/tmp/vllm_weight_cache_1000/x.pt",
    "/tmp/vllm_weight_*",
    "/tmp/sglang_weight_cache_*.ready",
    "/tmp/sglang_*",
    "/dev/shm/vllm_weight_cache*",
    "/dev/shm/sglang_weight_cache_0",
    "/srv/precious/x_*.pt",
]
ACCEPTED = [
    GLOB,
    "/tmp/*.pt",
    "/tmp/x.pt",
    "/tmp/**/*_debug_*.pt",
    "/tmp/*/x_debug.pt",
    "/tmp/dumper/*",
    "/tmp/dumper/**",
    "/scratch/dumper/**",
    "/scratch/x_*.pt",
    "/tmp/hicache_debug_*.pt",
    "/tmp/hicaches/x.pt",
    "/home/ada/x_*.pt",
    "/home/ada/models/*.pt",
    "/home/ada/models/**/x_debug_*.pt",
    "/var/dumps/**",
    "/data/x/**/*.pt",
    "/dev/shm/x_debug_*",
    "/tmp/a\nb_*.pt",
    "/tmp/[0-9]_debug",
]
STRICT = replace(
    REQUEST,
    env={**ENV, "TMPDIR": "/scratch", "DUMPS": "/var/dumps"},
    rules=replace(RULES, keep=("/srv/precious/**",)),
)


@pytest.mark.parametrize("glob", REFUSED)
def test_a_glob_that_is_too_wide_or_points_at_what_is_kept_is_refused(glob):
    request = replace(STRICT, artefacts=(glob,))
    (finding,) = judged(request=request)
    assert (finding.action, finding.blocking, finding.ownership) == (None, True, Ownership.UNKNOWN)
    assert finding.evidence[0]
    assert finding.remedy


@pytest.mark.parametrize("glob", ACCEPTED)
def test_a_glob_that_names_files_is_accepted(glob):
    assert refusal(glob, STRICT) is None
    assert judged(request=replace(STRICT, artefacts=(glob,))) == []


def test_what_is_kept_is_kept_for_a_program_without_rules():
    assert refusal("/tmp/hicache/x", SlateRequest("x", None, ())) == "/tmp/hicache is kept for ever"


def test_every_glob_that_engines_dump_by_can_be_given_by_the_user():
    rules = load_rules(available_rules())
    request = replace(REQUEST, rules=rules, env={**ENV, "VLLM_DEBUG_DUMP_PATH": "/scratch/dumps"})
    globs = expand(rules.artefacts, request.env)
    assert len(globs) >= 8
    assert {glob: why for glob in globs if (why := refusal(glob, request))} == {}

"""What the comparison of two kubectl outputs ignores, and what it must not ignore."""

from __future__ import annotations

import pytest

from tests.cluster.kubectl.terminals import Said, plain

PODS = """\
NAME   READY   STATUS             RESTARTS      AGE    NODE
a      0/1     CrashLoopBackOff   4 ({ago} ago)   {age}    100m
b-c    1/1     Running            0             {age}   <none>
"""
EVENTS = """\
LAST SEEN               TYPE      REASON    OBJECT   MESSAGE
{age} (x3 over {ago})   Warning   Waiting   Pod/a    room is scarce for 30s
"""
WIDE_EVENTS = """\
LAST SEEN   TYPE     REASON    OBJECT   SUBOBJECT   SOURCE   MESSAGE     FIRST SEEN   COUNT   NAME
{age}          Normal   Waiting   pod/a                gate     wait 30s    {ago}           3       a.1
"""
JOBS = """\
NAME   STATUS     COMPLETIONS   DURATION   AGE
j      Complete   1/1           {ago}         {age}
k      Running    0/1                      {age}
"""
DESCRIBED = """\
Name:         a
Age:          {age}
Tolerations:  node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
Events:
  Type     Reason   Age                From  Message
  ----     ------   ----               ----  -------
  Warning  Waiting  {age} (x3 over {ago})  gate  retry in 30s
  Normal   Waiting  {age}                gate  room is scarce
"""
QUOTA = """\
Name:         few
Resource      Used  Hard
--------      ----  ----
requests.cpu  100m  200m
"""
SHORT_WATCH = (
    'I1121 17:28:58.914847    4628 reflector.go:664] "Warning: watch ended with error" reflector="reflector.go:343" '
    'type="*unstructured.Unstructured" err="very short watch: reflector.go:343: Unexpected watch close - watch lasted '
    'less than a second and no items received"\n'
)


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        (PODS, "a 0/1 CrashLoopBackOff 4 (AGE ago) AGE 100m"),
        (EVENTS, "AGE (x3 over AGE) Warning Waiting Pod/a room is scarce for 30s"),
        (WIDE_EVENTS, "AGE Normal Waiting pod/a gate wait 30s AGE 3 a.1"),
        (JOBS, "j Complete 1/1 AGE AGE\nk Running 0/1 AGE"),
        (DESCRIBED, "Age: AGE\nTolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s"),
        (DESCRIBED, "  Warning Waiting AGE (x3 over AGE) gate retry in 30s\n  Normal Waiting AGE gate room is scarce"),
    ],
)
def test_text_beside_an_age_is_compared(table: str, shown: str) -> None:
    """Amounts, timeouts and counts stay as they are."""
    assert shown in plain(table.format(age="2m", ago="3h"))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("requests.cpu  100m  200m", "requests.cpu  900m  5m"),
        (QUOTA, QUOTA.replace("100m", "200m")),
        (QUOTA, QUOTA.replace("200m", "20m")),
        ("        cpu: 100m\n", "        cpu: 200m\n"),
        ("      cpu:        100m\n", "      cpu:        200m\n"),
        (" op=Exists for 300s", " op=Exists for 30s"),
        ("timeout: 30s", "timeout: 40s"),
        ("Liveness:  http-get delay=0s timeout=30s", "Liveness:  http-get delay=0s timeout=1s"),
        (JOBS + "\nNAME   CPU   MEMORY\nj      100m   1Gi\n", JOBS + "\nNAME   CPU   MEMORY\nj      200m   1Gi\n"),
        ("(x3 over 5m)", "(x4 over 5m)"),
    ],
)
def test_text_that_only_looks_like_an_age_is_compared(text: str, other: str) -> None:
    """CPU in millis, and timeouts."""
    assert plain(text) != plain(other)


def test_the_log_of_kubectl_is_compared() -> None:
    """An error that only one server causes shows up, whenever and by whichever process it was logged."""
    line = 'E1121 17:28:58.914847    4628 memcache.go:265] "Unhandled Error" err="no API group list"\n'
    later = line.replace("17:28:58.914847    4628", "18:01:00.000001   14629")
    assert Said(0, "", line).plain() == Said(0, "", later).plain()
    assert "no API group list" in plain(line)
    assert plain(line) != plain(line.replace("group list", "group"))
    assert Said(0, "", line).plain() != Said(0, "", "").plain()


def test_a_short_watch_is_ignored() -> None:
    """The one warning that appears by chance is left out, and nothing around it."""
    assert plain(f"one\n{SHORT_WATCH}two\n") == "one\ntwo\n"
    assert plain(SHORT_WATCH.replace("very short watch", "no watch")) != ""

"""Web API plugins: tasks that another service runs, behind a request and an answer.

A connector, a job server or any REST service has its own queue, its own limits and its own words for what became of a
job. A plugin (``protocol``) knows one kind of service: it creates a job there, gets its state, deletes it, and says
what the state means for the task. An ``entry`` offers it to the registry; its loader runs at the first task. The
manager does the rest, and treats all services alike:

*Once.* ``manager`` takes an attempt through a table of stages. Each stage is stored before the next one begins; that
the create is about to be sent is one of them. So after a kill it is known whether a job may exist already.

*In line.* A service that may run only so many jobs has a pool of tokens (``pools``): a quota that is kept here, in the
engine that keeps all others, so a task waits for a token as it waits for quota, with its priority, place and estimate.

*Gently.* ``refreshing`` reads the jobs in the background, the one that was read longest ago first; ``pacing`` keeps
reads and writes below the rates that the platform sets, and slows down when a service answers 429 or 503. Where tasks
may choose the server, each is paced by itself (``origins``), and namespaces take turns, so that one tenant's makes no
task of others wait.

``settings`` has the keys, defaults and ranges, which are Flyte's. This package knows no Kubernetes objects: they belong
to the other manager, and import-linter keeps the two apart.
"""

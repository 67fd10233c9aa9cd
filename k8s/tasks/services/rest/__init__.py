"""The rest plugin: it runs tasks at any service with a JSON API over HTTP, which a page of YAML describes.

It is to services what the generic plugin is to operators. ``service_config`` has the keys of a description: requests as
templates, where an answer has the job's id and state, and what each state means. ``templates`` fills a template in,
``parameters`` checks a task and makes the document that templates take their values from. ``answers`` reads an answer,
and says in a sentence what is wrong with one. All of that is pure; ``plugin`` sends the requests. ``entry`` offers a
service to the registry. ``services`` has the descriptions that ship.

*Surprising.* An answer that is about another job is an error, never news. An answer may have megabytes: what the plugin
keeps of it is its meaning, a ``PhaseInfo``. A job stays at the address where it was created, as long as the settings
accept that address: who may write a status names any. Secrets reach headers only, and are cut out of what a service
says.
"""

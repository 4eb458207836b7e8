"""An incident -> a comment on its ticket, with the page attached. `trackers.yaml` has a row for each issue tracker.

https://redmine.example/issues/7   ->   one comment and one postmortem-report.html, however often it is analyzed
"""

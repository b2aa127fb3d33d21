"""The program kv_feed, which subscribes to one engine's KV events."""
import json
import subprocess

import harness


class Feed:
    """The program kv_feed."""

    def __init__(self, case, port, replay_port=None, bind=False, ranks=1,
                 block_tokens=4, other=None, copies=0):
        replay = f'tcp://127.0.0.1:{replay_port}' if replay_port else ''
        self.log = open(case.folder + '/kv_feed.log', 'w+', encoding='utf-8')
        self.child = subprocess.Popen(
            [harness.program('tests', 'engines', 'kv_feed'),
             'bind' if bind else 'connect', f'tcp://127.0.0.1:{port}', replay,
             str(ranks), str(block_tokens),
             *([f'tcp://127.0.0.1:{other}', str(copies)] if other else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            text=True, preexec_fn=harness.die_with_parent)
        self.case = case
        case.addCleanup(self.end)

    def ask(self, line):
        self.child.stdin.write(line + '\n')
        self.child.stdin.flush()
        return self.child.stdout.readline()

    def stats(self):
        return json.loads(self.ask('stats'))

    def match(self, tokens, salt='-'):
        return int(self.ask(f'match {salt} ' + ' '.join(map(str, tokens))))

    def wait(self, **wanted):
        """Until its counts are these, and returns them all."""
        def are():
            stats = self.stats()
            return all(stats[k] == v for k, v in wanted.items()) and stats
        try:
            return harness.wait_until(f'{wanted}', are)
        except AssertionError as error:
            raise AssertionError(f'{error}: {self.stats()}') from error

    def end(self):
        self.child.stdin.close()
        status = self.child.wait(30 * harness.settings.scale)
        self.child.stdout.close()
        self.log.seek(0)
        said = self.log.read()
        self.log.close()
        if harness.SANITIZER.search(said) or status:
            raise AssertionError(f'status {status}: {said}')

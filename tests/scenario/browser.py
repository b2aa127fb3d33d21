"""A headless Chromium, steered by chromedriver over W3C WebDriver."""
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request

from harness import die_with_parent, wait_until

DRIVER = shutil.which('chromedriver')
CHROMIUM = shutil.which('chromium')
MISSING = 'no chromium with chromedriver'
AVAILABLE = bool(DRIVER and CHROMIUM)


class Browser:
    """One window."""

    def __init__(self, case, width, height):
        # Not in the case's folder: that goes before the browser does.
        self.home = home = tempfile.mkdtemp(prefix='conductor-browser-')
        log_path = os.path.join(home, 'chromedriver.log')
        with open(log_path, 'wb') as log:
            self.driver = subprocess.Popen(
                [DRIVER, '--port=0'], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, preexec_fn=die_with_parent, cwd=home,
                env={**os.environ, 'HOME': home})
        case.addCleanup(self.end)
        self.session = None

        def port():
            with open(log_path, encoding='utf-8', errors='replace') as f:
                found = re.search(r'on port (\d+)\.', f.read())
            return found and int(found.group(1))
        self.address = f'http://127.0.0.1:{wait_until("the driver listens", port)}'
        self.session = self.ask('POST', '/session', {'capabilities': {
            'alwaysMatch': {
                'goog:loggingPrefs': {'browser': 'ALL'},
                'goog:chromeOptions': {
                    'binary': CHROMIUM,
                    'mobileEmulation': {'deviceMetrics': {
                        'width': width, 'height': height, 'pixelRatio': 1}},
                    'args': ['--headless=new', '--no-sandbox',
                             '--disable-gpu', '--disable-dev-shm-usage',
                             f'--user-data-dir={home}/profile',
                             f'--window-size={width},{height}']}}}})[
            'sessionId']

    def ask(self, method, path, body=None):
        if self.session:
            path = f'/session/{self.session}{path}'
        request = urllib.request.Request(
            self.address + path, method=method,
            data=json.dumps(body or {}).encode() if method == 'POST' else None,
            headers={'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)['value']

    def end(self):
        if self.session:
            self.ask('DELETE', '')
        self.driver.terminate()
        self.driver.wait()

        def removed():
            shutil.rmtree(self.home, ignore_errors=True)
            return not os.path.exists(self.home)
        wait_until('the browser leaves its folder', removed)

    def open(self, address):
        self.ask('POST', '/url', {'url': address})

    def run(self, script):
        """What the script returns."""
        return self.ask('POST', '/execute/sync', {'script': script, 'args': []})

    def text(self, what='body'):
        return self.run(f'return document.querySelector({json.dumps(what)})'
                        '.innerText')

    def wait_for(self, *texts):
        def shown():
            text = self.text()
            return all(t in text for t in texts) and text
        try:
            return wait_until(f'the page shows {texts}', shown)
        except AssertionError:
            print(self.text(), self.complaints())
            raise

    def complaints(self):
        """What the browser's console has of errors."""
        return [line['message'] for line in self.ask(
            'POST', '/se/log', {'type': 'browser'})
            if line['level'] == 'SEVERE']

    def picture(self, path):
        with open(path, 'wb') as f:
            f.write(base64.b64decode(self.ask('GET', '/screenshot')))

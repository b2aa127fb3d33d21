"""Certificates of an authority of the test's own."""
import os
import ssl


class Certificates:
    """Of a Case."""

    def authority(self, name='ca'):
        """The file of its certificate."""
        self.openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt',
                     'ec_paramgen_curve:P-256', '-nodes', '-days', '7',
                     '-subj', f'/CN={name}', '-keyout', f'{name}.key',
                     '-out', f'{name}.pem')
        return os.path.join(self.folder, f'{name}.pem')

    def certificate(self, holder, ca='ca', days='7'):
        """An ssl.SSLContext with a certificate for a name or an address."""
        kind = 'IP' if holder[0].isdigit() else 'DNS'
        self.write('san', f'subjectAltName={kind}:{holder}\n')
        self.openssl('req', '-newkey', 'ec', '-pkeyopt',
                     'ec_paramgen_curve:P-256', '-nodes', '-subj',
                     f'/CN={holder}', '-keyout', f'{holder}.key', '-out',
                     f'{holder}.csr')
        self.openssl('x509', '-req', '-in', f'{holder}.csr', '-CA',
                     f'{ca}.pem', '-CAkey', f'{ca}.key', '-CAcreateserial',
                     '-days', days, '-extfile', 'san', '-out', f'{holder}.pem')
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(self.folder, f'{holder}.pem'),
                                os.path.join(self.folder, f'{holder}.key'))
        return context

    def openssl(self, *options):
        status, _, errors = self.run_program('openssl', *options)
        self.assertEqual(status, 0, errors)

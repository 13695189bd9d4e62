"""Java client properties in librdkafka's terms. Numbers are those of the authentication cases of the connector spec."""

from __future__ import annotations

import os

import pytest
from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.jaas import JaasError, client_settings, read_jaas
from upsert_platform.kafka.properties import COMMON, CONSUMER, JVM_ONLY, PRODUCER, ClientProperties, read_properties
from upsert_platform.kafka.stores import Store, wrapped_pem

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def translated(**properties: str) -> dict[str, str]:
    client, problems = read_properties({name.replace("__", "."): value for name, value in properties.items()})
    assert [problem for problem in problems if problem[1] == "error"] == []
    both = {**client.common, **client.consumer, **client.producer}
    return {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in both.items()}


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        pytest.param(
            f'{PLAIN} username="ckafka-x#u" password="a;b=c d\\"e\\\\";',
            "PlainLoginModule",
            {"username": "ckafka-x#u", "password": 'a;b=c d"e\\'},
            id="130-quoted",
        ),
        pytest.param(
            "org.apache.flink.kafka.shaded." + PLAIN + " username=u password=p ;",
            "PlainLoginModule",
            {"username": "u", "password": "p"},
            id="131-relocated-and-bare",
        ),
        pytest.param(f"{KERBEROS}\n useKeyTab=true;\n", "Krb5LoginModule", {"useKeyTab": "true"}, id="lines"),
    ],
)
def test_reads_jaas(text, module, options):
    assert read_jaas(text) == (module, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(f'{PLAIN} username="u" password="hunter2"', "does not end", id="no-semicolon"),
        pytest.param(f'{PLAIN} username="u" password="hunter2"; {PLAIN} x=y;', "more than one", id="two-modules"),
        pytest.param('x.OtherModule required password="hunter2";', "unknown login module", id="unknown-module"),
        pytest.param('x.PlainLoginModule needed password="hunter2";', "control flag", id="unknown-flag"),
        pytest.param(f'{PLAIN} password="hunter2";', "'username'", id="no-username"),
        pytest.param(f'{PLAIN} username="u" password="hunter2;', "cannot be read", id="open-quote"),
        pytest.param(f'{SCRAM} username="u" password="hunter2" tokenauth="true";', "token", id="delegation-token"),
        pytest.param(f'{OAUTH} clientId="c" clientSecret="hunter2";', "token.endpoint.url", id="oauth-no-endpoint"),
    ],
)
def test_refuses_jaas_without_showing_it(text, reason):
    with pytest.raises(JaasError) as caught:
        client_settings(text, {})
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        pytest.param({"sasl.jaas.config": f'{SCRAM} username="u" password="p";'}, {"sasl.password": "p"}, id="scram"),
        pytest.param(
            {"sasl.jaas.config": f'{KERBEROS} keyTab="/k" principal="a/b@C" serviceName="x" useTicketCache=true;'},
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "a/b@C",
                "sasl.kerberos.service.name": "x",
                "sasl.kerberos.min.time.before.relogin": "0",
            },
            id="kerberos",
        ),
        pytest.param(
            {"sasl.jaas.config": f'{KERBEROS} serviceName="x";', "sasl.kerberos.service.name": "hadoop"},
            {"sasl.kerberos.service.name": "hadoop"},
            id="kerberos-service-property-wins",
        ),
        pytest.param(
            {
                "sasl.jaas.config": f'{OAUTH} clientId="c" clientSecret="s" scope="r";',
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
            },
            {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.secret": "s", "sasl.oauthbearer.scope": "r"},
            id="oauth",
        ),
        pytest.param(
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
            id="134-endpoint-algorithm",
        ),
        pytest.param(
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
            {"ssl.ca.location": "/ca.pem"},
            id="pem",
        ),
        pytest.param({"ssl.truststore.certificates": "-----"}, {"ssl.ca.pem": "-----"}, id="pem-inline"),
        pytest.param(
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"},
            id="key-pkcs12",
        ),
        pytest.param(
            {
                "security.kerberos.login.principal": "hadoop/172.28.2.13@EMR",
                "security.kerberos.login.keytab": "emr.keytab",
                "security.kerberos.login.contexts": "KafkaClient",
            },
            {"sasl.kerberos.principal": "hadoop/172.28.2.13@EMR", "sasl.kerberos.keytab": "emr.keytab"},
            id="kerberos-login-of-a-job",
        ),
        pytest.param(
            {"security.kerberos.login.use-ticket-cache": "true"},
            {"sasl.kerberos.min.time.before.relogin": "0"},
            id="kerberos-ticket-cache",
        ),
        pytest.param(
            {
                "sasl.oauthbearer.client.credentials.client.id": "c",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s",
            },
            id="oauth-properties",
        ),
        pytest.param(
            {
                "sasl.jaas.config": f"{OAUTH} ;",
                "sasl.oauthbearer.client.credentials.client.id": "c",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.oauthbearer.scope": "r",
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
                "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer"
                ".ClientCredentialsJwtRetriever",
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "r",
            },
            id="oauth-of-kafka-4",
        ),
        pytest.param(
            {"sasl.jaas.config": f"{PLAIN} username='u' password='it\\'s \"so\"';"},
            {"sasl.username": "u", "sasl.password": 'it\'s "so"'},
            id="single-quotes",
        ),
        pytest.param(
            {"sasl.jaas.config": f'{PLAIN} username="a\\tb" password="\\101\\\\c";'},
            {"sasl.username": "a\tb", "sasl.password": "A\\c"},
            id="escapes-of-java",
        ),
        pytest.param(
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"},
            {"ssl.key.location": "/k.pem", "ssl.certificate.location": "/k.pem"},
            id="key-pem",
        ),
        pytest.param({"max.request.size": "5"}, {"message.max.bytes": "5"}, id="max.request.size"),
        pytest.param({"buffer.memory": "2048"}, {"queue.buffering.max.kbytes": "2"}, id="buffer.memory"),
        pytest.param({"fetch.max.wait.ms": "7"}, {"fetch.wait.max.ms": "7"}, id="fetch.max.wait.ms"),
        pytest.param({"security.protocol": "SASL_SSL"}, {"security.protocol": "sasl_ssl"}, id="protocol"),
        pytest.param({"acks": "-1"}, {"acks": "all"}, id="acks"),
    ],
)
def test_translates(declared, expected):
    assert (
        expected.items() <= translated(**{name.replace(".", "__"): value for name, value in declared.items()}).items()
    )


def test_132_what_the_client_refuses_is_never_handed_on():
    client, problems = read_properties(
        {"sasl.jaas.config": f'{PLAIN} username="u" password="p";', "ssl.truststore.location": "/t.jks"}
    )
    config = KafkaEndpoint("127.0.0.1:1", client).consumer_config()
    assert {"sasl.jaas.config", "ssl.truststore.location"}.isdisjoint(config)
    assert problems == []
    assert client.trust_store == Store("/t.jks", "ssl.truststore.location")


def test_133_kerberos_without_support_in_the_client_is_told_at_once():
    client, _ = read_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    with pytest.raises(EndpointError, match="no Kerberos"):
        KafkaEndpoint("127.0.0.1:1", client).open_consumer()


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_the_client_knows_every_property_that_is_handed_on(role):
    """Names only: a value may be wrong for a property, but the property must exist."""
    from confluent_kafka import Consumer, KafkaException, Producer

    build = {"consumer": Consumer, "producer": Producer}[role]
    unknown = []
    for name in sorted(COMMON | (CONSUMER if role == "consumer" else PRODUCER)):
        try:
            build({"group.id": "g", "log_level": 0, name: "1"})
        except KafkaException as error:
            if "No such configuration property" in error.args[0].str():
                unknown.append(name)
    assert unknown == []


def test_java_only_properties_are_none_that_the_client_would_use():
    assert not JVM_ONLY & (COMMON | CONSUMER | PRODUCER)


def test_groups():
    assert read_properties({})[0] == ClientProperties(
        consumer={"isolation.level": "read_committed"}, commit_offsets=False
    )
    client = read_properties({"group.id": "g", "commit.offsets.on.checkpoint": "false"})[0]
    assert (client.group_id, client.commit_offsets, client.client_id_prefix) == ("g", False, "g")


def test_offsets_are_not_open_to_be_declared():
    client, _ = read_properties({"auto.offset.reset": "latest", "enable.auto.commit": "true"})
    config = KafkaEndpoint("127.0.0.1:1", client).consumer_config()
    assert (config["auto.offset.reset"], config["enable.auto.commit"]) == ("error", "false")


@pytest.mark.parametrize(
    ("declared", "severity", "text"),
    [
        pytest.param({"ssl.truststore.type": "BKS"}, "error", "PEM, JKS, PKCS12", id="unknown-store-type"),
        pytest.param({"security.kerberos.login.contexts": "Client"}, "error", "KafkaClient", id="other-context"),
        pytest.param(
            {"sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.x.JwtBearerJwtRetriever"},
            "error",
            "ClientCredentialsJwtRetriever",
            id="jwt-bearer",
        ),
        pytest.param({"security.kerberos.login.keytap": "k"}, "error", "'keytab'", id="unknown-kerberos"),
    ],
)
def test_says_what_it_cannot_use(declared, severity, text):
    ((_, found, message),) = read_properties(declared)[1]
    assert found == severity
    assert text in message


def test_pem_gets_its_lines_back():
    body = "QUJD" * 40
    lines = "\n".join([body[:64], body[64:128], body[128:]])
    wrapped = f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
    for text in (wrapped, wrapped.replace("\n", " "), wrapped.replace("\n", "\\n")):
        assert wrapped_pem(text).strip() == wrapped.strip()
    encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n-----END RSA PRIVATE KEY-----"
    assert wrapped_pem(encrypted) == encrypted


def test_a_krb5_conf_is_read_by_kerberos_and_there_is_one_per_process(tmp_path, monkeypatch):
    monkeypatch.setenv("KRB5_CONFIG", "")
    mine, other = tmp_path / "krb5.conf", tmp_path / "other.conf"
    mine.write_text("[libdefaults]\n")
    client, problems = read_properties({"security.kerberos.login.conf": str(mine)})
    assert problems == []
    KafkaEndpoint("127.0.0.1:1", client).open_producer()
    assert os.environ["KRB5_CONFIG"] == str(mine)
    for path, reason in ((other, "this process reads"), (mine, "")):
        client, _ = read_properties({"security.kerberos.login.krb5-conf.path": str(path)})
        if reason:
            with pytest.raises(EndpointError, match=reason):
                KafkaEndpoint("127.0.0.1:1", client).open_producer()
        else:
            KafkaEndpoint("127.0.0.1:1", client).open_producer()
    monkeypatch.setenv("KRB5_CONFIG", "")
    client, _ = read_properties({"security.kerberos.login.conf": str(other)})
    with pytest.raises(EndpointError, match="not there"):
        KafkaEndpoint("127.0.0.1:1", client).open_producer()

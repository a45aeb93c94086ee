#!/usr/bin/env python3
"""deploy/kubernetes against Kubernetes' own schemas, against itself, and against the program: kubernetes_test.py CHORAL [unittest arguments].

Built-in kinds are validated by the schemas of kubernetes-validate. For the kinds of others no Python package carries the schemas, so FORMS has
the fields that they must and may have. With kubectl the overlay is also looked at as `kubectl kustomize` renders it."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import fleet
import served

yaml = served.need("yaml")
kubernetes_validate = served.need("kubernetes_validate")

FOLDER = fleet.PROJECT / "deploy" / "kubernetes"
VERSIONS = ("1.28.0", "1.37.0")  # autoscaling/v2, policy/v1 and the rest are in all between them
OVERLAY = FOLDER / "overlays" / "production"
NOT_APPLIED = {"kustomization.yaml", "adapter-rules.yaml", "size.yaml"}
# Of the definitions in their projects' repositories of August 2026: the fields that must be there, and after | those that may.
FORMS = {
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "spec": "selector targetPorts | endpointPickerRef appProtocol", "spec.selector": "matchLabels", "spec.targetPorts[]": "number",
        "spec.endpointPickerRef": "name port | group kind failureMode", "spec.endpointPickerRef.port": "number"},
    ("llm-d.ai/v1alpha2", "InferenceObjective"): {"spec": "poolRef | priority", "spec.poolRef": "name | group kind"},
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): {
        "spec": "parentRefs rules | hostnames", "spec.parentRefs[]": "name | group kind namespace sectionName port",
        "spec.rules[]": "backendRefs | name matches filters timeouts", "spec.rules[].matches[]": "path | headers method queryParams",
        "spec.rules[].matches[].path": "type value", "spec.rules[].backendRefs[]": "name | group kind namespace port weight",
        "spec.rules[].timeouts": "| request backendRequest"},
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "spec": "endpoints selector | jobLabel namespaceSelector", "spec.selector": "matchLabels",
        "spec.endpoints[]": "port | path interval scheme authorization tlsConfig", "spec.endpoints[].authorization": "credentials | type",
        "spec.endpoints[].authorization.credentials": "key name | optional"},
}


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def applied():
    """Each document that is applied, and its file."""
    return [(path, document) for path in sorted(FOLDER.rglob("*.yaml")) if path.name not in NOT_APPLIED for document in documents(path)]


def settings(path):
    """Of a choral.conf."""
    return dict(re.findall(r"^([\w-]+) = (.*)$", path.read_text(), re.M))


def at(value, path):
    """Every value at a path such as spec.rules[].backendRefs[]; none where it leads nowhere."""
    values = [value]
    for part in path.split("."):
        values = [v[part.removesuffix("[]")] for v in values if part.removesuffix("[]") in v]
        if part.endswith("[]"):
            values = [element for v in values for element in v]
    return values


def faults_of_form(document):
    form = FORMS[document["apiVersion"], document["kind"]]
    for path, fields in form.items():
        must, may = (set(part.split()) for part in (fields if "|" in fields else fields + "|").split("|"))
        for value in at(document, path):
            if must - set(value):
                yield f"{path} lacks {sorted(must - set(value))}"
            if set(value) - must - may:
                yield f"{path} has {sorted(set(value) - must - may)}"


def schema_faults(document):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{version}: {'.'.join(map(str, error.path))}: {error.message}"


def render(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=served.LONG)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


class DocumentsTest(unittest.TestCase):
    """What is written, file by file."""

    def test_every_document_is_valid(self):
        kinds = set()
        for path, document in applied():
            kind = document["apiVersion"], document["kind"]
            kinds.add(kind)
            self.assertEqual(list(faults_of_form(document) if kind in FORMS else schema_faults(document)), [], path)
        self.assertLessEqual(set(FORMS), kinds)

    def test_faults_are_found(self):
        deployment = documents(FOLDER / "base" / "deployment.yaml")[0]
        deployment["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
        self.assertTrue(list(schema_faults(deployment)))
        pool = documents(FOLDER / "components" / "gateway" / "inferencepool.yaml")[0]
        pool["spec"]["targetPort"] = pool["spec"].pop("targetPorts")
        self.assertEqual(len(list(faults_of_form(pool))), 2)

    def test_kustomizations_name_each_file(self):
        for path in sorted(FOLDER.rglob("kustomization.yaml")):
            made = documents(path)[0]
            named = {*made.get("resources", ()), *(patch["path"] for patch in made.get("patches", ()) if "path" in patch),
                     *(file for generator in made.get("configMapGenerator", ()) for file in generator["files"]), *made.get("components", ())}
            for name in named:
                self.assertTrue((path.parent / name).exists(), f"{path}: {name}")
            there = {file.name for file in path.parent.iterdir()} - {"kustomization.yaml", "adapter-rules.yaml"}
            self.assertEqual(there - named, set(), f"{path.parent}: nobody names these")


class Applied:
    """Checks of a set of documents that is applied as a whole."""

    def one(self, kind, name="choral"):
        found = [document for document in self.all if document["kind"] == kind and document["metadata"]["name"] == name]
        self.assertEqual(len(found), 1, (kind, name))
        return found[0]

    def setUp(self):
        self.all = self.load()
        self.deployment = self.one("Deployment")
        self.pod = self.deployment["spec"]["template"]
        self.container, = self.pod["spec"]["containers"]
        self.port, = self.container["ports"]

    def selects_the_pods(self, selector):
        labels = self.pod["metadata"]["labels"]
        self.assertTrue(selector)
        self.assertEqual({key: labels.get(key) for key in selector}, selector)

    def test_selectors_ports_and_names_agree(self):
        self.selects_the_pods(self.deployment["spec"]["selector"]["matchLabels"])
        self.selects_the_pods(self.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
        for spread in self.pod["spec"]["topologySpreadConstraints"]:
            self.selects_the_pods(spread["labelSelector"]["matchLabels"])
        service = self.one("Service")
        self.selects_the_pods(service["spec"]["selector"])
        self.assertEqual([port["targetPort"] for port in service["spec"]["ports"]], [self.port["name"]])
        self.assertEqual(str(self.port["containerPort"]), self.settings["port"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.container[probe]["httpGet"]["port"], self.port["name"])
        self.assertEqual([self.container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")], ["/readyz", "/readyz", "/health"])

    def test_what_reads_the_figures_finds_them(self):
        for monitor in (document for document in self.all if document["kind"] == "ServiceMonitor"):
            service = self.one("Service")
            self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), service["metadata"]["labels"].items())
            self.assertEqual([endpoint["port"] for endpoint in monitor["spec"]["endpoints"]], [service["spec"]["ports"][0]["name"]])
        for scaler in (document for document in self.all if document["kind"] == "HorizontalPodAutoscaler"):
            self.assertEqual(scaler["spec"]["scaleTargetRef"], {"apiVersion": "apps/v1", "kind": "Deployment", "name": "choral"})
            self.assertNotIn("replicas", self.deployment["spec"], "it would be set back at each apply")

    def test_the_gateway_finds_the_pods(self):
        for pool in (document for document in self.all if document["kind"] == "InferencePool"):
            self.selects_the_pods(pool["spec"]["selector"]["matchLabels"])
            self.assertEqual([port["number"] for port in pool["spec"]["targetPorts"]], [self.port["containerPort"]])
        for document in self.all:
            reference = {"InferenceObjective": "spec.poolRef", "HTTPRoute": "spec.rules[].backendRefs[]"}.get(document["kind"])
            for target in at(document, reference) if reference else ():
                self.assertEqual((target["group"], self.one("InferencePool")["apiVersion"]), ("inference.networking.k8s.io", "inference.networking.k8s.io/v1"))
                self.assertEqual(target["name"], "choral")

    def test_the_pod_may_do_little(self):
        spec, context = self.pod["spec"], self.container["securityContext"]
        self.assertTrue(spec["securityContext"]["runAsNonRoot"])
        user = re.search(r"^USER (\d+)$", (fleet.PROJECT / "packaging" / "Containerfile").read_text(), re.M)[1]
        self.assertEqual({str(spec["securityContext"][key]) for key in ("runAsUser", "runAsGroup", "fsGroup")}, {user})
        self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertEqual((context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"], context["capabilities"]), (False, True, {"drop": ["ALL"]}))
        self.assertFalse(spec["automountServiceAccountToken"])
        self.assertFalse(spec["enableServiceLinks"], "CHORAL_PORT would be tcp://…")
        self.assertEqual(self.container["resources"]["requests"], self.container["resources"]["limits"])

    def test_its_paths_are_mounted(self):
        volumes = {volume["name"]: volume for volume in self.pod["spec"]["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in self.container["volumeMounts"]}
        self.assertEqual({mount["name"] for mount in mounts.values()}, set(volumes))
        self.assertFalse(any("subPath" in mount for mount in mounts.values()), "a Secret that is mounted so never changes")
        paths = {value: name for name, value in self.settings.items() if value.startswith("/")}
        paths |= {argument.partition("=")[2] or argument: argument for argument in self.container["args"] if "/" in argument}
        for path, name in paths.items():
            mount = next((mount for place, mount in mounts.items() if path == place or path.startswith(place + "/")), None)
            self.assertIsNotNone(mount, f"{name}: {path} is in no volume, and the root is read-only")
            self.assertEqual("emptyDir" in volumes[mount["name"]], name == "state-dir", name)
            self.assertEqual(mount.get("readOnly", False), name != "state-dir", name)
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                claim = self.one("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
                self.assertEqual((claim["spec"]["accessModes"], volume["persistentVolumeClaim"]["readOnly"]), (["ReadOnlyMany"], True))
            if "secret" in volume:
                self.assertEqual(volume["secret"]["defaultMode"] & 0o337, 0, "the group may read it, and nobody else")

    def test_it_has_time_to_end(self):
        words = re.search(r"kLastWords\{(\d+)\}", (fleet.PROJECT / "src" / "serve" / "server.cc").read_text())[1]
        needed = float(self.settings["shutdown-delay"]) + float(self.settings["shutdown-timeout"]) + int(words) / 1000
        self.assertGreater(self.pod["spec"]["terminationGracePeriodSeconds"], needed)
        readiness = self.container["readinessProbe"]
        self.assertGreater(float(self.settings["shutdown-delay"]), readiness["periodSeconds"] * readiness["failureThreshold"],
                           "it must be out of the Service before requests are refused")
        startup = self.container["startupProbe"]
        self.assertGreaterEqual(self.deployment["spec"]["progressDeadlineSeconds"], startup["periodSeconds"] * startup["failureThreshold"])

    def test_the_program_knows_its_settings(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("".join(f"{name} = {value}\n" for name, value in self.settings.items()))
            conf.flush()
            command, *arguments = [conf.name if argument == "/etc/choral/conf/choral.conf" else argument for argument in self.container["args"]]
            self.assertEqual(command, "serve")
            done = subprocess.run([served.CHORAL, "config", "show", *arguments], capture_output=True, text=True, timeout=served.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, value in self.settings.items():
            self.assertRegex(done.stdout, rf"(?m)^(--)?{name}\s+{re.escape(value)}\s")


class BaseTest(Applied, unittest.TestCase):
    settings = settings(FOLDER / "base" / "choral.conf")

    def load(self):
        return [document for path in sorted((FOLDER / "base").glob("*.yaml")) if path.name not in NOT_APPLIED for document in documents(path)]


@unittest.skipUnless(shutil.which("kubectl"), "no kubectl here, which renders the overlay")
class OverlayTest(Applied, unittest.TestCase):
    settings = settings(OVERLAY / "choral.conf")

    def load(self):
        return render(OVERLAY)

    def test_what_is_rendered_is_valid(self):
        for document in self.all:
            kind = document["apiVersion"], document["kind"]
            self.assertEqual(list(faults_of_form(document) if kind in FORMS else schema_faults(document)), [], kind)
            if document["kind"] != "Namespace":
                self.assertEqual(document["metadata"]["namespace"], "choral")
        names = {document["metadata"]["name"] for document in self.all if document["kind"] == "ConfigMap"}
        self.assertEqual({volume["configMap"]["name"] for volume in self.pod["spec"]["volumes"] if "configMap" in volume}, names)


@unittest.skipUnless(shutil.which("kubectl"), "no kubectl here, which renders the component")
class TlsTest(Applied, unittest.TestCase):
    settings = settings(FOLDER / "base" / "choral.conf")

    def load(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(shutil.copytree(FOLDER, pathlib.Path(folder) / "kubernetes"))
            (copy / "tls").mkdir()
            (copy / "tls" / "kustomization.yaml").write_text("resources: [../base]\ncomponents: [../components/tls]\n")
            return render(copy / "tls")

    def test_probes_speak_it(self):
        self.assertEqual({self.container[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}, {"HTTPS"})


class FiguresTest(unittest.TestCase):
    def test_the_autoscaler_asks_for_a_figure_that_is_there(self):
        rule, = documents(FOLDER / "components" / "autoscaling" / "adapter-rules.yaml")[0]["rules"]["custom"]
        series = re.search(r'__name__="([^"]+)"', rule["seriesQuery"])[1]
        scaler = documents(FOLDER / "components" / "autoscaling" / "horizontalpodautoscaler.yaml")[0]
        self.assertEqual([metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]], [rule["name"]["as"]])
        files = served.Files()
        server = served.Server(files.model)
        self.addCleanup(server.stop)
        self.assertRegex(server.call("GET", "/metrics")[2], rf"(?m)^{series}(\{{.*\}})? \d")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)

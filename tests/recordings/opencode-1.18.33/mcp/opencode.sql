CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded6f1e3001EeVeu2NVpmgHg5','ses_e21290f22ffetei1pWLZIXks7X',1794739991011,1794739996290,'{"role":"user","time":{"created":1794739991011},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded6fc98001Q4GSLSPWeaysFX','ses_e21290f22ffetei1pWLZIXks7X',1794739993752,1794739996180,'{"parentID":"msg_1ded6f1e3001EeVeu2NVpmgHg5","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794739993752,"completed":1794739996179},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded7061e001KuBaHKdrilN0mP','ses_e21290f22ffetei1pWLZIXks7X',1794739996190,1794739996451,'{"parentID":"msg_1ded6f1e3001EeVeu2NVpmgHg5","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794739996190,"completed":1794739996450},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded6f248001pp0nlr5KE5ZwNK','msg_1ded6f1e3001EeVeu2NVpmgHg5','ses_e21290f22ffetei1pWLZIXks7X',1794739991133,1794739991135,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded704b3001Lx3OjgzhJ3lzZa','msg_1ded6fc98001Q4GSLSPWeaysFX','ses_e21290f22ffetei1pWLZIXks7X',1794739995830,1794739995836,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded704c9001hFR9hHqE5G2MlN','msg_1ded6fc98001Q4GSLSPWeaysFX','ses_e21290f22ffetei1pWLZIXks7X',1794739995852,1794739996147,'{"type":"tool","tool":"adder_add","callID":"call_main_00_00","state":{"status":"completed","input":{"a":2,"b":3},"output":"5","metadata":{"truncated":false},"title":"","time":{"start":1794739996063,"end":1794739996146}}}');
INSERT INTO "part" VALUES('prt_1ded705aa0014tVWBKHNLnt9kS','msg_1ded6fc98001Q4GSLSPWeaysFX','ses_e21290f22ffetei1pWLZIXks7X',1794739996074,1794739996131,'{"type":"tool","tool":"adder_boom","callID":"call_main_00_01","state":{"status":"error","input":{},"error":"boom failed","time":{"start":1794739996091,"end":1794739996130}}}');
INSERT INTO "part" VALUES('prt_1ded705fc001W3nwhNDoCiqGb0','msg_1ded6fc98001Q4GSLSPWeaysFX','ses_e21290f22ffetei1pWLZIXks7X',1794739996156,1794739996165,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded706de001UmZ7cAcbSWDLmd','msg_1ded7061e001KuBaHKdrilN0mP','ses_e21290f22ffetei1pWLZIXks7X',1794739996382,1794739996386,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded706e60015lhuIExnekGZ5Y','msg_1ded7061e001KuBaHKdrilN0mP','ses_e21290f22ffetei1pWLZIXks7X',1794739996390,1794739996423,'{"type":"text","text":"Five.","time":{"start":1794739996390,"end":1794739996415}}');
INSERT INTO "part" VALUES('prt_1ded70709001lmL0noK8wCmUBu','msg_1ded7061e001KuBaHKdrilN0mP','ses_e21290f22ffetei1pWLZIXks7X',1794739996431,1794739996432,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e21290f22ffetei1pWLZIXks7X','global',NULL,NULL,'brave-planet','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794739990750,1794739996557,NULL,NULL);

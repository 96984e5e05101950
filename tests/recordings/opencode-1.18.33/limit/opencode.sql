CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1dedb7b86001SLRoZCqS120v7d','ses_e212484f0ffe4KsInKBZXeU4nW',1794740288390,1794740290768,'{"role":"user","time":{"created":1794740288390},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1dedb80fe00180DKUOTBFRED61','ses_e212484f0ffe4KsInKBZXeU4nW',1794740289791,1794740290596,'{"parentID":"msg_1dedb7b86001SLRoZCqS120v7d","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740289791,"completed":1794740290595},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1dedb84260018ZpGsGKZ9Vp4SC','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290598,1794740290749,'{"parentID":"msg_1dedb7b86001SLRoZCqS120v7d","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740290598,"completed":1794740290748},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1dedb84bf001u4oA0VaDV8C0g4','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290751,1794740290751,'{"parentID":"msg_1dedb7b86001SLRoZCqS120v7d","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740290751}}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1dedb7b960019TPNaFJx9CH449','msg_1dedb7b86001SLRoZCqS120v7d','ses_e212484f0ffe4KsInKBZXeU4nW',1794740288418,1794740288425,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1dedb83b5001RPHb61TO6oJlZ4','msg_1dedb80fe00180DKUOTBFRED61','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290485,1794740290487,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedb83b9001AtXwWshq5K8P29','msg_1dedb80fe00180DKUOTBFRED61','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290489,1794740290585,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"status":"completed","input":{"command":"echo 0"},"output":"0\n","metadata":{"output":"0\n","exit":0,"truncated":false},"title":"echo 0","time":{"start":1794740290499,"end":1794740290584}}}');
INSERT INTO "part" VALUES('prt_1dedb841d001FFVncY5wgP8a1g','msg_1dedb80fe00180DKUOTBFRED61','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290589,1794740290590,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1dedb848e001Ysr9r3HfrJGX23','msg_1dedb84260018ZpGsGKZ9Vp4SC','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290702,1794740290703,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedb849000138glA2BWSNLWPN','msg_1dedb84260018ZpGsGKZ9Vp4SC','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290704,1794740290743,'{"type":"tool","tool":"bash","callID":"call_main_01_00","state":{"status":"completed","input":{"command":"echo 1"},"output":"1\n","metadata":{"output":"1\n","exit":0,"truncated":false},"title":"echo 1","time":{"start":1794740290710,"end":1794740290743}}}');
INSERT INTO "part" VALUES('prt_1dedb84b9001pVM8YmchtsABQw','msg_1dedb84260018ZpGsGKZ9Vp4SC','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290745,1794740290746,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1dedb84e9001mcS9aTmw034C7B','msg_1dedb84bf001u4oA0VaDV8C0g4','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290793,1794740290795,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedb84ec001VIbUBxpf4XV48o','msg_1dedb84bf001u4oA0VaDV8C0g4','ses_e212484f0ffe4KsInKBZXeU4nW',1794740290796,1794740290802,'{"type":"tool","tool":"bash","callID":"call_main_02_00","state":{"metadata":{"output":""},"status":"running","input":{"command":"echo 2"},"time":{"start":1794740290801}}}');
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
INSERT INTO "session" VALUES('ses_e212484f0ffe4KsInKBZXeU4nW','global',NULL,NULL,'calm-cactus','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740288271,1794740290762,NULL,NULL);

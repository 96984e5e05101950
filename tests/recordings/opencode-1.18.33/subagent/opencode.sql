CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded9a27c0016Bi0kEi111G6ig','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740167292,1794740170035,'{"role":"user","time":{"created":1794740167292},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded9a816001HwVbRWOIxdKCOu','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740168727,1794740169914,'{"parentID":"msg_1ded9a27c0016Bi0kEi111G6ig","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740168727,"completed":1794740169913},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded9aba3001tPQa6kglLTZeNw','ses_e21265463ffejjaym85AI0aVr7',1794740169636,1794740169938,'{"role":"user","time":{"created":1794740169636},"agent":"general","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded9abb6001OhDFGvPweK3Ckt','ses_e21265463ffejjaym85AI0aVr7',1794740169654,1794740169818,'{"parentID":"msg_1ded9aba3001tPQa6kglLTZeNw","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740169654,"completed":1794740169817},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded9ac5c001I2cHh3dmNF3yZd','ses_e21265463ffejjaym85AI0aVr7',1794740169820,1794740169885,'{"parentID":"msg_1ded9aba3001tPQa6kglLTZeNw","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740169820,"completed":1794740169880},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1ded9acbc001jrMNr1N0ugrBHQ','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169916,1794740169996,'{"parentID":"msg_1ded9a27c0016Bi0kEi111G6ig","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740169916,"completed":1794740169996},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded9a284001weN0ixY4yrnMWm','msg_1ded9a27c0016Bi0kEi111G6ig','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740167304,1794740167310,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded9ab90001lxnG9oWk3UvB5R','msg_1ded9a816001HwVbRWOIxdKCOu','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169616,1794740169617,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded9ab93001JTi21UScObeGib','msg_1ded9a816001HwVbRWOIxdKCOu','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169619,1794740169897,'{"type":"tool","tool":"task","callID":"call_task","state":{"status":"completed","input":{"description":"sub job","prompt":"SUBJOB do it","subagent_type":"general"},"output":"<task id=\"ses_e21265463ffejjaym85AI0aVr7\" state=\"completed\">\n<task_result>\nSub report.\n</task_result>\n</task>","metadata":{"parentSessionId":"ses_e21265dd8ffesvUuzrzo1L1DF9","sessionId":"ses_e21265463ffejjaym85AI0aVr7","model":{"modelID":"mock-model","providerID":"mock"},"truncated":false},"title":"sub job","time":{"start":1794740169631,"end":1794740169896}}}');
INSERT INTO "part" VALUES('prt_1ded9aba6001lpjnQV2ve4apxw','msg_1ded9aba3001tPQa6kglLTZeNw','ses_e21265463ffejjaym85AI0aVr7',1794740169640,1794740169641,'{"type":"text","text":"SUBJOB do it"}');
INSERT INTO "part" VALUES('prt_1ded9abe1001rCWV2aekQBjUe4','msg_1ded9abb6001OhDFGvPweK3Ckt','ses_e21265463ffejjaym85AI0aVr7',1794740169697,1794740169698,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded9abe3001X1o8wTsu44JHKg','msg_1ded9abb6001OhDFGvPweK3Ckt','ses_e21265463ffejjaym85AI0aVr7',1794740169699,1794740169715,'{"type":"text","text":"sub says","time":{"start":1794740169699,"end":1794740169714}}');
INSERT INTO "part" VALUES('prt_1ded9abe6001HbFR9eLN9nM7z4','msg_1ded9abb6001OhDFGvPweK3Ckt','ses_e21265463ffejjaym85AI0aVr7',1794740169702,1794740169808,'{"type":"tool","tool":"bash","callID":"call_thread0_00_00","state":{"status":"completed","input":{"command":"echo sub"},"output":"sub\n","metadata":{"output":"sub\n","exit":0,"truncated":false},"title":"echo sub","time":{"start":1794740169707,"end":1794740169807}}}');
INSERT INTO "part" VALUES('prt_1ded9ac530013rRxirzVAJINUP','msg_1ded9abb6001OhDFGvPweK3Ckt','ses_e21265463ffejjaym85AI0aVr7',1794740169812,1794740169812,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded9ac8a001fSkpQxIn4w6Z5g','msg_1ded9ac5c001I2cHh3dmNF3yZd','ses_e21265463ffejjaym85AI0aVr7',1794740169866,1794740169867,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded9ac90001AxkPcRti5NyWfG','msg_1ded9ac5c001I2cHh3dmNF3yZd','ses_e21265463ffejjaym85AI0aVr7',1794740169872,1794740169875,'{"type":"text","text":"Sub report.","time":{"start":1794740169872,"end":1794740169874}}');
INSERT INTO "part" VALUES('prt_1ded9ac94001fTCz0lIGOrj8Ya','msg_1ded9ac5c001I2cHh3dmNF3yZd','ses_e21265463ffejjaym85AI0aVr7',1794740169876,1794740169877,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded9acab001d4eerfKGEjSI4o','msg_1ded9a816001HwVbRWOIxdKCOu','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169899,1794740169899,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded9ad01001TwSHe3KHkjUvfN','msg_1ded9acbc001jrMNr1N0ugrBHQ','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169985,1794740169986,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded9ad03001I0uEBuhsH43u8n','msg_1ded9acbc001jrMNr1N0ugrBHQ','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169988,1794740169991,'{"type":"text","text":"Main end.","time":{"start":1794740169987,"end":1794740169990}}');
INSERT INTO "part" VALUES('prt_1ded9ad08001JOwodIFzY6Cuoz','msg_1ded9acbc001jrMNr1N0ugrBHQ','ses_e21265dd8ffesvUuzrzo1L1DF9',1794740169992,1794740169993,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e21265dd8ffesvUuzrzo1L1DF9','global',NULL,NULL,'quiet-meadow','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740167207,1794740170012,NULL,NULL);
INSERT INTO "session" VALUES('ses_e21265463ffejjaym85AI0aVr7','global',NULL,'ses_e21265dd8ffesvUuzrzo1L1DF9','happy-squid','/workspace','workspace','sub job (@general subagent)','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"},{"permission":"task","pattern":"*","action":"deny"}]','general','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740169628,1794740169931,NULL,NULL);
